"""Workspaces of units with real git: made before the agent starts, found by every try, lost, delivered and removed."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from tests.workspaces.conftest import git, write
from tests.workspaces.conftest import top as top

from paceline.agents import load_agent
from paceline.core.unit_lifecycle import Counters
from paceline.engine import commands
from paceline.engine.session.unit_stages import LOST_NOTE
from paceline.executors.interface import Launch
from paceline.simulation.agent_transcripts import answer, done, init
from paceline.simulation.executor import Run
from paceline.store import Store, UnitCounts, UnitSpec, WorkspaceSettings
from paceline.testing.engine_harness import EngineHarness
from paceline.views.unit_changes import finished_works
from paceline.views.why import explain_unit
from paceline.workspaces import read_settings, resolve_base

Script = Callable[[Launch], Run]


def works(launch: Launch) -> Run:
    """A session that writes a file with two lines."""
    return Run(seconds=20.0, act=lambda: write(Path(launch.cwd) / "new.txt", "one\ntwo\n"))


def harness_of(top: Path, script: Script, *, pool: int = 4, store: Store | None = None) -> EngineHarness:
    harness = EngineHarness(script, pool=pool, heartbeat=5.0, store=store)
    harness.settings = msgspec.structs.replace(harness.settings, home=str(top.parent / "home"))
    harness.engine = harness.new_engine()
    return harness


def add(harness: EngineHarness, top: Path, units: int = 1, *, output: str | None = None, **fields: object) -> None:
    """Add a campaign; the fields of its workspace are those of `WorkspaceSettings`."""
    repository, commit = resolve_base(str(top), "HEAD")
    names = WorkspaceSettings.__struct_fields__
    own = {name: fields.pop(name) for name in names if name in fields}
    stored = {"bases": {repository: commit}, "git": {repository: read_settings(repository)}}
    settings = msgspec.convert(stored | own, WorkspaceSettings)
    specs = [UnitSpec(id=f"u{n}", prompt="do it", cwd=str(top), output=output) for n in range(units)]
    harness.add("night", specs, workspace=settings, **fields)


def kind_of(launch: Launch) -> str:
    tail = launch.attempt_id.rpartition("-")[2].rstrip("0123456789")
    return tail if tail in ("setup", "check", "deliver") else "session"


async def test_every_try_uses_the_same_folder_and_its_work_is_committed_with_its_numbers(top: Path) -> None:
    count = iter(range(10))

    def script(launch: Launch) -> Run:
        return Run(exit_code=1, seconds=5.0) if next(count) == 0 else works(launch)

    async with harness_of(top, script) as harness:
        add(harness, top, keep="all")
        await harness.run(120.0)

        unit, folder = harness.unit("night/u0"), str(top.parent / "home" / "workspaces" / "night" / "u0")
        assert (unit.state, [launch.cwd for launch in harness.executor.started]) == ("done", [folder] * 2)
        result = unit.result
        assert (result.workspace, result.branch, result.repository) == (folder, "paceline/night/u0", str(top))
        assert (result.files_changed, result.lines_added, result.lines_removed) == (1, 2, 0)
        assert git(top, "rev-parse", "paceline/night/u0") == result.commit
        assert git(top, "log", "-1", "--format=%s", "paceline/night/u0") == "night: u0"
        (delivered,) = harness.events("unit.delivered")
        assert delivered.fields == {"branch": "paceline/night/u0", "commit": result.commit, "patch": None}
        assert (git(top, "status", "--porcelain"), len(harness.events("workspace.created"))) == ("", 1)


@pytest.mark.parametrize(("asked", "level"), [(None, "edit"), ("read", "read")])
async def test_an_agent_may_edit_in_a_workspace_of_its_own_unless_the_plan_asks_for_less(
    top: Path, asked: str | None, level: Literal["edit", "read"]
) -> None:
    flags = {name: " ".join(of.arguments) for name, of in load_agent("claude").permissions.items()}
    async with harness_of(top, lambda _: Run()) as harness:
        add(harness, top, agent="claude", accounts=("max-1",), command=(), permissions=asked)
        harness.add_claude("elsewhere", 1)
        await harness.run(120.0)
        given = {"workspaces" in launch.cwd: " ".join(launch.argv) for launch in harness.executor.started}

    assert [name for name, text in flags.items() if text in given[True]] == [level]
    assert [name for name, text in flags.items() if text in given[False]] == []
    page = (Path(__file__).parents[3] / "docs" / "plan-files.md").read_text("utf-8")
    assert "| `permissions` | `edit` with a workspace, else the CLI's default |" in page
    assert "a plan with\n`[campaign.workspace]` gets `edit`. Without a workspace the CLI decides" in page


async def test_where_a_workspace_lies_is_stored_before_it_is_made_and_survives_a_crash(top: Path) -> None:
    async with harness_of(top, lambda _: Run(seconds=500.0)) as harness:
        add(harness, top, setup=("make", "ready"))
        await harness.run(20.0)
        stored = harness.unit("night/u0").result
        assert (stored.workspace, harness.unit("night/u0").phase) == (
            str(top.parent / "home" / "workspaces" / "night" / "u0"),
            "working",
        )
        await harness.crash()
        harness.executor.script = works
        await harness.run(120.0)

        unit = harness.unit("night/u0")
        assert (unit.state, unit.result.branch, unit.counters.losses) == ("done", stored.branch, 1)
        assert [kind_of(launch) for launch in harness.executor.started] == ["setup", "setup", "session"]


async def test_a_setup_runs_once_and_live_workspaces_have_ports_of_their_own(top: Path) -> None:
    fails_once = iter([1])

    def script(launch: Launch) -> Run:
        is_first = kind_of(launch) == "session" and launch.env["PACELINE_UNIT"] == "night/u0"
        return Run(exit_code=next(fails_once, 0) if is_first else 0, seconds=30.0)

    async with harness_of(top, script) as harness:
        add(harness, top, 3, setup=("make", "ready"), check=("make", "test"))
        await harness.run(400.0)

        assert harness.store.counts() == {"night": UnitCounts(done=3)}
        kinds = [kind_of(launch) for launch in harness.executor.started]
        assert {kind: kinds.count(kind) for kind in kinds} == {"setup": 3, "session": 4, "check": 3}
        first = [launch.env["PACELINE_PORT_BASE"] for launch in harness.executor.started[:3]]
        assert sorted(first) == ["20000", "20010", "20020"]


async def test_a_setup_that_fails_charges_nothing_and_pauses_the_campaign(top: Path) -> None:
    def script(launch: Launch) -> Run:
        return Run(stderr="no network\n", exit_code=1, seconds=1.0) if kind_of(launch) == "setup" else works(launch)

    async with harness_of(top, script) as harness:
        add(harness, top, setup=("npm", "ci"))
        await harness.run(150.0)

        (campaign,) = harness.store.campaigns()
        reason = "the setup failed (exit code 1): no network"
        assert (campaign.state, campaign.pause_reason) == ("paused", reason)
        assert (harness.unit("night/u0").state, harness.failures()) == ("todo", 0)
        harness.executor.script = works
        commands.resume_campaigns(harness.store, ["night"], now=harness.clock.now())
        await harness.run(120.0)
        assert harness.unit("night/u0").state == "done"


def parks_first(launch: Launch) -> Run:
    session = init("talk") + answer("talk")
    if "--resume" in launch.argv:
        return Run(stdout=session, later=((20.0, done("talk")),), seconds=20.0)
    return Run(stdout=session, seconds=500.0)


async def test_a_lost_folder_is_made_again_from_its_branch_and_the_agent_is_told(top: Path) -> None:
    async with harness_of(top, parks_first) as harness:
        add(harness, top, agent="claude", model="opus-4-6", accounts=("max-1",), command=())
        await harness.run(20.0)
        folder = harness.unit("night/u0").result.workspace
        assert folder is not None
        shutil.rmtree(folder)
        harness.executor.reboot()
        await harness.run(100.0)

        assert harness.unit("night/u0").state == "done"
        second = harness.executor.started[1]
        assert (second.cwd, LOST_NOTE in "\n".join((*second.argv, second.stdin.decode()))) == (folder, True)
        assert [event.fields["path"] for event in harness.events("workspace.lost")] == [folder]


async def test_a_unit_whose_branch_is_lost_too_is_held_until_it_starts_over(top: Path) -> None:
    async with harness_of(top, lambda _: Run(seconds=500.0)) as harness:
        add(harness, top, keep="all")
        await harness.run(20.0)
        unit = harness.unit("night/u0")
        assert unit.result.workspace is not None
        shutil.rmtree(unit.result.workspace)
        git(top, "worktree", "prune")
        git(top, "branch", "-D", "paceline/night/u0")
        harness.executor.reboot()
        harness.executor.script = works
        await harness.run(60.0)

        unit = harness.unit("night/u0")
        assert (unit.state, (unit.reason or "").startswith("workspace lost: ")) == ("held", True)
        commands.retry_unit(harness.store, unit, fresh=True, now=harness.clock.now())
        await harness.run(60.0)
        unit = harness.unit("night/u0")
        assert (unit.state, unit.result.files_changed, unit.counters) == ("done", 1, Counters(attempts=3))


async def test_a_repository_that_vanishes_pauses_the_campaign_and_charges_nothing(top: Path) -> None:
    async with harness_of(top, works) as harness:
        add(harness, top, 2)
        shutil.move(top, top.parent / "elsewhere")
        await harness.run(150.0)

        (campaign,) = harness.store.campaigns()
        assert (campaign.state, str(top) in (campaign.pause_reason or "")) == ("paused", True)
        assert (harness.store.counts()["night"].todo, harness.failures(), harness.executor.started) == (2, 0, [])


@pytest.mark.parametrize(
    ("keep", "after_success", "after_failure"),
    [("failed", False, True), ("all", True, True), ("none", False, False)],
)
async def test_a_plan_says_which_workspaces_are_kept(
    top: Path, keep: str, after_success: bool, after_failure: bool
) -> None:
    def script(launch: Launch) -> Run:
        if kind_of(launch) == "check":
            return Run(exit_code=int(launch.env["PACELINE_UNIT"] == "night/u1"), seconds=1.0)
        return works(launch)

    async with harness_of(top, script) as harness:
        add(harness, top, 2, keep=keep, check=("make", "test"), check_rounds=0)
        await harness.run(100.0)

        assert harness.store.counts() == {"night": UnitCounts(done=1, unverified=1)}
        folders = [Path(harness.unit(f"night/u{n}").result.workspace or "") for n in range(2)]
        assert [folder.exists() for folder in folders] == [after_success, after_failure]
        assert git(top, "show", "paceline/night/u0:new.txt") == "one\ntwo"


async def test_unverified_work_is_committed_so_that_an_accepted_unit_can_be_merged(top: Path) -> None:
    def script(launch: Launch) -> Run:
        return Run(exit_code=1, seconds=1.0) if kind_of(launch) == "check" else works(launch)

    async with harness_of(top, script) as harness:
        add(harness, top, check=("make", "test"), check_rounds=0)
        await harness.run(100.0)
        unit = harness.unit("night/u0")
        assert (unit.state, unit.result.commit) == ("unverified", git(top, "rev-parse", "paceline/night/u0"))
        assert (unit.result.files_changed, harness.events("unit.delivered")) == (1, [])
        commands.accept_unit(harness.store, unit, now=harness.clock.now())

        (work,) = finished_works(harness.store, "night")
        assert git(top, "show", f"{work.commit}:new.txt") == "one\ntwo"


async def test_a_crash_before_the_commit_of_unverified_work_loses_neither_it_nor_the_verdict(top: Path) -> None:
    def script(launch: Launch) -> Run:
        return Run(exit_code=1, seconds=10.0) if kind_of(launch) == "check" else works(launch)

    async with harness_of(top, script) as harness:
        add(harness, top, check=("make", "test"), check_rounds=0)
        while not harness.events("unit.checked"):
            await harness.run(1.0)
        await harness.crash()
        await harness.run(100.0)

        unit = harness.unit("night/u0")
        assert (unit.state, len(unit.result.checks)) == ("unverified", 1)
        assert unit.result.commit == git(top, "rev-parse", "paceline/night/u0")


async def test_an_output_is_looked_for_in_the_workspace(top: Path) -> None:
    async with harness_of(top, works) as harness:
        add(harness, top, output=str(top / "new.txt"))
        await harness.run(60.0)

        assert (harness.unit("night/u0").state, (top / "new.txt").exists()) == ("done", False)


async def test_a_patch_is_delivered_as_a_file(top: Path) -> None:
    async with harness_of(top, works) as harness:
        add(harness, top, deliver="patch")
        await harness.run(60.0)

        patch = top.parent / "home" / "patches" / "night" / "u0.patch"
        assert [event.fields["patch"] for event in harness.events("unit.delivered")] == [str(patch)]
        git(top, "apply", str(patch))
        assert (top / "new.txt").read_text() == "one\ntwo\n"


async def test_a_delivery_that_fails_twice_pauses_the_campaign_and_only_the_delivery_runs_again(top: Path) -> None:
    def script(launch: Launch) -> Run:
        return Run(stderr="no remote\n", exit_code=1, seconds=1.0) if kind_of(launch) == "deliver" else works(launch)

    async with harness_of(top, script) as harness:
        add(harness, top, deliver=("push", "{branch}", "{base}..{commit}", "{workspace}"))
        await harness.run(120.0)

        (campaign,) = harness.store.campaigns()
        assert (campaign.state, campaign.pause_reason) == ("paused", "the delivery failed (exit code 1): no remote")
        unit = harness.unit("night/u0")
        result = unit.result
        assert (unit.state, unit.phase, harness.failures()) == ("running", "delivering", 0)
        argv = ("push", "paceline/night/u0", f"{result.base}..{result.commit}", result.workspace)
        assert [launch.argv for launch in harness.executor.started[1:]] == [argv] * 2

        await harness.crash()  # what failed before is not read again
        harness.executor.script = works
        commands.resume_campaigns(harness.store, ["night"], now=harness.clock.now())
        await harness.run(60.0)
        assert harness.unit("night/u0").state == "done"
        assert [kind_of(launch) for launch in harness.executor.started] == ["session", *["deliver"] * 3]
        assert len(harness.events("unit.delivered")) == 1


# -- between a claim and its session --------------------------------------------------------------------


def slow_setup(launch: Launch) -> Run:
    return Run(seconds=100.0) if kind_of(launch) == "setup" else works(launch)


def kinds(harness: EngineHarness) -> list[str]:
    return [kind_of(launch) for launch in harness.executor.started]


async def test_a_unit_says_that_its_workspace_is_set_up_and_then_that_its_session_runs(top: Path) -> None:
    async with harness_of(top, slow_setup) as harness:
        add(harness, top, setup=("npm", "ci"))
        await harness.run(50.0)
        preparing = detail_of(harness)
        await harness.run(75.0)

        assert kinds(harness) == ["setup", "session"]
        assert preparing == "its workspace is being set up on this machine; its session begins after that"
        assert detail_of(harness) == "its session runs on this machine"


def detail_of(harness: EngineHarness) -> str:
    (campaign,) = harness.store.campaigns()
    (why,) = explain_unit(harness.unit("night/u0"), campaign, {}, leaderless=None)
    return why.detail


async def test_a_pause_during_the_setup_lets_no_session_start_and_the_setup_is_not_repeated(top: Path) -> None:
    async with harness_of(top, slow_setup) as harness:
        add(harness, top, setup=("npm", "ci"))
        await harness.run(50.0)
        commands.pause_campaigns(harness.store, ["night"], now=harness.clock.now())
        await harness.run(500.0)
        unit = harness.unit("night/u0")
        assert (unit.state, unit.counters, kinds(harness)) == ("todo", Counters(), ["setup"])
        assert harness.engine.is_idle()

        commands.resume_campaigns(harness.store, ["night"], now=harness.clock.now())
        await harness.run(100.0)
        assert (harness.unit("night/u0").state, kinds(harness)) == ("done", ["setup", "session"])


async def test_a_pause_while_the_worktree_is_made_starts_neither_setup_nor_session(top: Path) -> None:
    async with harness_of(top, slow_setup) as harness:
        add(harness, top, setup=("npm", "ci"))
        harness.engine.start()
        list(harness.engine.make_pass())  # claims the unit, and starts to look for a free folder
        assert harness.running() == ["night/u0"]
        commands.pause_campaigns(harness.store, ["night"], now=harness.clock.now())
        for _ in range(5):
            list(harness.engine.make_pass())
        unit = harness.unit("night/u0")
        assert (unit.state, unit.reason) == ("todo", "its campaign was paused before its session began")
        assert (unit.counters, kinds(harness)) == (Counters(), [])
        assert harness.scope("sessions").in_flight == 0
        harness.engine.close()


@pytest.mark.parametrize("setup", [(), ("npm", "ci")])
async def test_a_unit_that_is_cancelled_during_its_preparation_starts_no_session(
    top: Path, setup: tuple[str, ...]
) -> None:
    async with harness_of(top, slow_setup) as harness:
        add(harness, top, setup=setup)
        harness.engine.start()
        list(harness.engine.make_pass())
        assert harness.running() == ["night/u0"]
        # Not as a command, of which the engine would know: as late as another process can cancel it.
        harness.store.cancel_units("night", ["night/u0"], now=harness.clock.now())
        for _ in range(5):
            list(harness.engine.make_pass())
        assert (harness.unit("night/u0").state, "session" in kinds(harness)) == ("cancelled", False)
        harness.engine.close()


async def test_a_request_to_end_keeps_a_session_that_is_being_prepared_from_starting(top: Path) -> None:
    async with harness_of(top, slow_setup) as harness:
        add(harness, top, setup=("npm", "ci"))
        await harness.run(50.0)
        later = harness.clock.now() + 1000.0
        unit = harness.unit("night/u0")
        commands.end_at_turn(harness.store, unit, reason="over budget", resume_at=later, now=harness.clock.now())
        await harness.run(500.0)
        unit = harness.unit("night/u0")
        assert (unit.state, unit.counters, kinds(harness)) == ("todo", Counters(), ["setup"])
        await harness.run(800.0)
        assert (harness.unit("night/u0").state, kinds(harness)) == ("done", ["setup", "session"])


async def test_a_setup_holds_no_session_slot_but_a_place_for_checks(top: Path) -> None:
    def script(launch: Launch) -> Run:
        is_slow = kind_of(launch) == "setup" and launch.env["PACELINE_UNIT"] == "night/u0"
        return Run(seconds=1000.0) if is_slow else slow_setup(launch)

    async with harness_of(top, script, pool=1) as harness:
        harness.settings = msgspec.structs.replace(harness.settings, checks=2)
        harness.engine = harness.new_engine()
        add(harness, top, 3, setup=("npm", "ci"))
        await harness.run(30.0)
        in_flight = {scope: harness.scope(scope).in_flight for scope in ("sessions", "checks")}
        assert (in_flight, kinds(harness)) == ({"sessions": 1, "checks": 2}, ["setup", "setup"])
        await harness.run(300.0)
        assert harness.states() == {"night/u0": "running", "night/u1": "done", "night/u2": "done"}
        await harness.run(1000.0)
        assert harness.store.counts() == {"night": UnitCounts(done=3)}
        assert [unit.counters.attempts for unit in harness.store.units().units] == [1, 1, 1]


async def test_a_unit_that_was_set_up_keeps_its_ports_while_it_waits_for_a_session(top: Path) -> None:
    async with harness_of(top, slow_setup, pool=1) as harness:
        add(harness, top, 4, setup=("npm", "ci"))
        await harness.run(2000.0)
        assert harness.store.counts() == {"night": UnitCounts(done=4)}
        ports: dict[str, set[str]] = {}
        for launch in harness.executor.started:
            ports.setdefault(launch.env["PACELINE_UNIT"], set()).add(launch.env["PACELINE_PORT_BASE"])
        assert all(len(of_unit) == 1 for of_unit in ports.values())


async def test_an_agent_whose_lost_folder_was_set_up_again_is_told(top: Path) -> None:
    async with harness_of(top, parks_first) as harness:
        add(harness, top, agent="claude", model="opus-4-6", accounts=("max-1",), command=(), setup=("npm", "ci"))
        harness.executor.script = lambda launch: Run(seconds=5.0) if kind_of(launch) == "setup" else parks_first(launch)
        await harness.run(40.0)
        folder = harness.unit("night/u0").result.workspace
        assert folder is not None
        await harness.stop()
        harness.executor.lose(harness.executor.started[-1].attempt_id)
        shutil.rmtree(folder)
        await harness.run(120.0)

        assert (harness.unit("night/u0").state, kinds(harness)) == ("done", ["setup", "session", "setup", "session"])
        last = harness.executor.started[-1]
        assert LOST_NOTE in "\n".join((*last.argv, last.stdin.decode()))
