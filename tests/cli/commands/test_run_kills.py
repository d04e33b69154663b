"""`paceline run` killed with SIGKILL at random moments, and started again until all is done."""

import random
import subprocess
from collections import Counter
from pathlib import Path

from tests.cli.conftest import Workspace, lines_of
from tests.warm_process import WarmProcess

from paceline.daemon.home import open_home

SEED = 13
KILLS = 4
UNITS = [f"u{number}" for number in range(12)]
POLL_SECONDS = 0.02
PATIENCE_SECONDS = 120


def test_after_any_number_of_kills_each_unit_ran_once_and_its_end_was_told_once(workspace: Workspace) -> None:
    chance = random.Random(SEED)
    workspace.write("paceline.toml", "[pool]\nsessions = 3\n")
    plan = workspace.plan("echo {id} >> starts; sleep 0.1", *UNITS)
    runs_when_done: dict[str, int] = {}

    for _ in range(KILLS):
        kill_within(workspace, workspace.start("run", plan), chance)
        runs = starts(workspace)
        runs_when_done = {name: runs[name] for name in done_units(workspace)} | runs_when_done

    last = workspace.start("run", plan)
    assert (last.communicate(timeout=PATIENCE_SECONDS)[1], last.returncode) == ("", 0)
    runs = starts(workspace)
    assert {name: runs[name] for name in runs_when_done} == runs_when_done
    assert runs == dict.fromkeys(UNITS, 1)
    assert told_ends(workspace) == {f"docs/{name}": 1 for name in UNITS}


def kill_within(workspace: Workspace, process: WarmProcess, chance: random.Random) -> None:
    """Kill a run after it has started a few more units, in the middle of whatever it does then."""
    enough = sum(starts(workspace).values()) + chance.randint(0, 3)
    while sum(starts(workspace).values()) < enough and not has_ended_within(process, POLL_SECONDS):
        pass
    has_ended_within(process, chance.uniform(0.0, 0.3))
    process.kill()
    process.wait()


def has_ended_within(process: WarmProcess, seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def starts(workspace: Workspace) -> Counter[str]:
    return Counter(lines_of(workspace.folder / "starts"))


def done_units(workspace: Workspace) -> list[str]:
    if not (workspace.home / "paceline.db").exists():
        return []  # killed before it began
    with open_home() as home:
        return [unit.spec.id for unit in home.store.units(state="done").units]


def told_ends(workspace: Workspace, event: str = "unit.done") -> Counter[str | None]:
    with open_home() as home:
        return Counter(each.event.unit for each in home.store.events(limit=10_000) if each.event.name == event)


def test_after_any_number_of_kills_the_work_of_each_unit_is_checked_committed_and_told_once(
    workspace: Workspace,
) -> None:
    chance = random.Random(SEED)
    workspace.write("paceline.toml", "[pool]\nsessions = 2\n")
    repository = workspace.folder / "project"
    repository.mkdir()
    names, log = UNITS[:6], workspace.folder / "starts"
    head = 'check = ["test", "-f", "ready"]\n[campaign.workspace]\nkind = "worktree"\nsetup = ["touch", "ready"]\n'
    plan = workspace.plan(f"echo {{id}} >> {log}; echo {{id}} > new.txt; sleep 0.1", *names, head=head)
    plan = plan.rename(repository / plan.name)
    for arguments in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "first"]):
        git(repository, *arguments)

    for _ in range(KILLS):
        kill_within(workspace, workspace.start("run", plan), chance)
    last = workspace.start("run", plan)
    assert (last.communicate(timeout=PATIENCE_SECONDS)[1], last.returncode) == ("", 0)

    assert told_ends(workspace) == {f"docs/{name}": 1 for name in names}
    assert told_ends(workspace, "unit.delivered") == {f"docs/{name}": 1 for name in names}
    assert starts(workspace) == dict.fromkeys(names, 1)
    for name in names:
        branch = f"paceline/docs/{name}"
        assert git(repository, "log", "--format=%s", f"main..{branch}") == f"docs: {name}"
        assert git(repository, "show", f"{branch}:new.txt") == name
    with open_home() as home:
        units = home.store.units().units
    assert {unit.state for unit in units} == {"done"}
    assert all(unit.result.checks and unit.result.checks[-1].exit_code == 0 for unit in units)
    assert git(repository, "status", "--porcelain") == ""


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
    return subprocess.run(
        ["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()
