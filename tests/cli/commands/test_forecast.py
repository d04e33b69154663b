"""`forecast`: the same engine in virtual time, on what this home has seen."""

import subprocess
import time
from datetime import UTC, datetime

import pytest
from tests.cli.conftest import Workspace

from paceline.core import Governor, Ticket
from paceline.core.signals import QuotaClosed
from paceline.daemon.home import open_home
from paceline.engine.capacity.governor_state import save_governor
from paceline.events import Event

HOUR = 3600.0
MAX_1 = 'accounts = ["max-1"]\nmodel = "opus-4-6"\nagent = "claude"\n'
SETTINGS = '[accounts.max-1]\nprovider = "anthropic"\nkind = "subscription"\n'
PATH = "anthropic/max-1/opus-4-6"


def remember(*events: Event) -> None:
    with open_home() as home:
        home.store.append_events(events)


def ran(unit: str, began: float, seconds: float, ending: str = "unit.done", scope: str = PATH) -> tuple[Event, Event]:
    return Event("unit.started", began, scope, unit), Event(ending, began + seconds, None, unit)


def window(name: str, holds: float, length: float, *, used: float = 0.0, resets_at: float | None = None) -> object:
    return {
        "name": name,
        "session_seconds": holds,
        "length": length,
        "used_seconds": used,
        "resets_at": resets_at,
    }


def claude_plan(workspace: Workspace, units: int) -> object:
    workspace.write("paceline.toml", SETTINGS)
    names = "\n".join(f'[[unit]]\nid = "u{n}"\nprompt = "do {n}"' for n in range(units))
    return workspace.write("docs.toml", f'[campaign]\nname = "docs"\n{MAX_1}\n{names}\n')


@pytest.fixture
def claude(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A claude on the path, so that the plan can run; the forecast starts nothing."""
    program = workspace.write("claude", "#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{workspace.folder}:/usr/bin:/bin")
    return workspace


def test_without_history_it_says_what_it_assumes_and_which_pool_is_worth_it(workspace: Workspace) -> None:
    plan = workspace.plan("true", "a", "b", "c")

    shown = workspace.run_json("forecast", plan)

    assert (shown["basis"]["units"], shown["basis"]["tries_known"], shown["basis"]["windows"]) == (3, 0, {})
    took = {size: round(each["finished_at"] - shown["now"]) for size, each in shown["pools"].items()}
    assert took == {"1": 1800, "2": 1200, "3": 600, "4": 600}
    assert (shown["pool"], shown["pool_worth_it"], shown["parks"]) == (4, 3, 0)
    assert workspace.run_json("list") == {"campaigns": []}  # nothing was stored


def test_durations_come_from_what_ran_with_the_same_model(claude: Workspace) -> None:
    plan = claude_plan(claude, 4)
    now = time.time()
    remember(
        *ran("old/a", now - 500, 100), *ran("old/b", now - 300, 200), *ran("old/c", now, 900, scope="agent:command")
    )

    shown = claude.run_json("forecast", plan)

    assert (shown["basis"]["unit_seconds"], shown["basis"]["tries_known"], shown["basis"]["known_from"]) == (
        150,
        2,
        PATH,
    )


def test_a_window_that_was_spent_before_parks_the_plan_and_tells_when(claude: Workspace) -> None:
    """It held two hours of sessions in five; five hours and twenty minutes of work take a third one in part."""
    plan = claude_plan(claude, 8)
    begun = time.time() - 20 * HOUR
    closed = {"window": "5h", "resets_at": begun + 5 * HOUR, "source": "field", "confidence": 1.0, "probe_at": None}
    remember(
        *(event for name in "abc" for event in ran(f"old/{name}", begun, 2400.0)),
        Event("window.closed", begun + 2401, "anthropic/max-1", None, closed),
        Event("window.reopened", begun + 5 * HOUR, "anthropic/max-1", None, {"window": "5h"}),
    )

    shown = claude.run_json("forecast", plan)

    assert shown["basis"]["windows"] == {"max-1": [window("5h", 2 * HOUR, 5 * HOUR)]}
    assert shown["parks"] > 0
    first = shown["closings"][0]
    assert first[0] == "anthropic/max-1"
    assert first[1] - shown["now"] == pytest.approx(HOUR / 2, abs=120)  # four at once spend two hours in half of one
    assert first[2] - shown["now"] == pytest.approx(5 * HOUR, abs=120)
    assert (shown["finished_at"] - shown["now"]) / HOUR == pytest.approx(10.4, abs=0.2)
    assert [each[0] for each in shown["closings"]] == [
        "anthropic/max-1"
    ] * 2  # once for each period, whoever was refused
    assert shown["pool_worth_it"] == 2  # the window binds, not the pool
    assert (shown["reserve"]["finished_at"] - shown["now"]) / HOUR > 15  # four fifths of two hours, four times


def test_what_the_governor_has_learnt_of_a_window_outranks_what_the_events_tell(claude: Workspace) -> None:
    plan = claude_plan(claude, 8)
    begun = time.time() - 4 * HOUR
    governor = Governor(now=begun)
    governor.request(Ticket("a", ("sessions", "anthropic", "anthropic/max-1")), now=begun)
    closed = QuotaClosed(window="5h", resets_at=begun + 5 * HOUR, source="field")
    governor.report("anthropic/max-1", closed, now=begun + HOUR)
    with open_home() as home:
        save_governor(home.store, governor)

    shown = claude.run_json("forecast", plan)

    assert shown["basis"]["windows"] == {"max-1": [window("5h", HOUR, 5 * HOUR, used=HOUR, resets_at=begun + 5 * HOUR)]}


def test_a_replay_plays_what_ran_against_the_settings_of_now(workspace: Workspace) -> None:
    plan = workspace.plan("true", "a", "b")
    workspace.run_json("add", plan)
    begun = time.time() - HOUR
    remember(*ran("docs/a", begun, 300, scope="agent:command"), *ran("docs/b", begun + 300, 300, scope="agent:command"))

    shown = workspace.run_json("forecast", "--replay", "docs")

    assert (shown["basis"]["units"], shown["took"]) == (2, 600)
    assert shown["finished_at"] - shown["now"] == pytest.approx(300, abs=1)  # side by side, it takes half the time


@pytest.mark.parametrize("argv", [(), ("docs.toml", "--replay", "docs"), ("--replay", "nothing")])
def test_wrong_use_is_refused(workspace: Workspace, argv: tuple[str, ...]) -> None:
    workspace.plan("true", "a")

    assert "Error" in workspace.run("forecast", *argv, code=2).output


def test_people_get_a_table(workspace: Workspace) -> None:
    shown = workspace.run("forecast", workspace.plan("true", "a", "b")).output

    assert "docs: 2 units, about 10 min each (assumed: nothing has run yet)" in shown
    assert "worth it" in shown


def test_a_week_counts_what_all_its_shorter_windows_held_and_nothing_from_before(claude: Workspace) -> None:
    plan = claude_plan(claude, 2)
    begun = time.time() - 200 * HOUR
    weekly = {"window": "weekly", "resets_at": begun + 168 * HOUR, "source": "field", "confidence": 1.0}
    first = weekly | {"window": "5h", "resets_at": begun + 5 * HOUR}
    second = weekly | {"window": "5h", "resets_at": begun + 25 * HOUR}
    remember(
        *ran("old/long-ago", begun - 50 * HOUR, HOUR),
        *ran("old/a", begun, 2 * HOUR),
        Event("window.closed", begun + 2 * HOUR, "anthropic/max-1", None, first),
        *ran("old/unclosed", begun + 10 * HOUR, HOUR),
        *ran("old/b", begun + 20 * HOUR, 3 * HOUR),
        Event("window.closed", begun + 23 * HOUR, "anthropic/max-1", None, second),
        *ran("old/c", begun + 26 * HOUR, HOUR),
        Event("window.closed", begun + 27 * HOUR, "anthropic/max-1", None, weekly),
    )

    shown = claude.run_json("forecast", plan)

    assert shown["basis"]["windows"] == {
        "max-1": [window("5h", 3 * HOUR, 5 * HOUR), window("weekly", 7 * HOUR, 168 * HOUR)]
    }


def test_a_timeout_below_what_is_assumed_fails_nothing(workspace: Workspace) -> None:
    plan = workspace.write(
        "docs.toml",
        '[campaign]\nname = "docs"\ncommand = ["true"]\ntimeout = "5m"\n[[unit]]\nid = "a"\n[[unit]]\nid = "b"\n',
    )

    shown = workspace.run_json("forecast", plan)

    assert (shown["basis"]["unit_seconds"], shown["finished_at"] - shown["now"]) == (300, 300)


def test_a_plan_that_is_finished_leaves_nothing_to_forecast(workspace: Workspace) -> None:
    plan = workspace.plan("true", "a")
    workspace.run("run", plan)

    shown = workspace.run_json("forecast", plan)
    said = workspace.run("forecast", plan).output

    assert (shown["basis"]["units"], shown["finished_at"], list(shown["pools"])) == (0, shown["now"], ["1", "4"])
    assert said == "docs: no unit waits or runs; nothing is left to forecast\n"


@pytest.mark.parametrize(
    ("minutes", "verdict"),
    [
        (300, "meets its deadline"),
        (15, "by 5 min: a pool of 6 meets it"),
        (5, "by 15 min: no pool of up to 6 meets it; give it more time"),
    ],
)
def test_a_deadline_is_made_or_missed_and_what_would_make_it(workspace: Workspace, minutes: int, verdict: str) -> None:
    deadline = datetime.fromtimestamp(time.time() + minutes * 60, UTC).isoformat()
    units = "".join(f'[[unit]]\nid = "{name}"\n' for name in "abcdef")
    plan = workspace.write(
        "docs.toml", f'[campaign]\nname = "docs"\ncommand = ["true"]\ndeadline = {deadline}\n{units}'
    )

    assert verdict in workspace.run("forecast", plan).output


def test_very_many_units_are_played_in_bundles_that_end_at_the_same_time(workspace: Workspace) -> None:
    plan = workspace.plan("true", *(f"u{n}" for n in range(2000)))

    shown = workspace.run_json("forecast", plan)

    assert shown["basis"]["units"] == 2000
    took = {size: (each["finished_at"] - shown["now"]) / HOUR for size, each in shown["pools"].items()}
    assert took == {
        size: pytest.approx(2000 / 6 / int(size), rel=0.03) for size in ("1", "2", "4", "8", "16", "32", "64")
    }


def test_a_reset_that_cannot_be_is_no_history(claude: Workspace) -> None:
    plan = claude_plan(claude, 2)
    begun = time.time() - 20 * HOUR
    closed = {"window": "5h", "resets_at": begun + 5 * HOUR, "source": "field", "confidence": 1.0}
    remember(
        *ran("old/a", begun, 2 * HOUR),
        Event("window.closed", begun + 2 * HOUR, "anthropic/max-1", None, closed),
        Event("window.closed", begun + 6 * HOUR, "anthropic/max-1", None, closed | {"resets_at": begun * 1000}),
        Event("window.closed", begun + 7 * HOUR, "anthropic/max-1", None, closed | {"resets_at": None}),
    )

    shown = claude.run_json("forecast", plan)

    assert shown["basis"]["windows"] == {"max-1": [window("5h", 2 * HOUR, 5 * HOUR)]}


def test_a_replay_goes_without_an_account_that_the_settings_no_longer_have(claude: Workspace) -> None:
    plan = claude_plan(claude, 2)
    claude.run_json("add", plan)
    elsewhere = PATH.replace("max-1", "max-9")
    remember(*ran("docs/u0", time.time() - HOUR, 300), *ran("docs/u1", time.time() - HOUR, 300, scope=elsewhere))
    others = claude.write("others.toml", '[campaign]\nname = "others"\ncommand = ["true"]\n[[unit]]\nid = "a"\n')
    replayed = claude.run_json("forecast", "--replay", "docs")
    claude.write("paceline.toml", SETTINGS.replace("max-1", "max-2"))

    refused = claude.run("forecast", "--replay", "docs", code=2).output
    beside = claude.run_json("forecast", others)

    assert replayed["basis"]["units"] == 2  # also what ran on one that is gone
    assert "docs runs on max-1, which the settings do not have: add [accounts.max-1] to paceline.toml" in refused
    assert beside["finished_at"] - beside["now"] == 300  # nothing of docs can run, so nothing competes


def test_a_paused_campaign_is_reported_to_be_paused(workspace: Workspace) -> None:
    plan = workspace.plan("true", "a")
    workspace.run("add", plan)
    workspace.run("pause", "docs")

    shown = workspace.run("forecast", plan).output

    assert "docs: 1 unit, about 10 min each" in shown
    assert "it is paused: this is what happens after `paceline resume docs`" in shown


def test_one_period_in_which_you_were_at_work_too_does_not_rule(claude: Workspace) -> None:
    plan = claude_plan(claude, 2)
    begun = time.time() - 50 * HOUR
    for number, held in enumerate((2.0 * HOUR, 1.5 * HOUR, 5.0)):
        opened = begun + number * 10 * HOUR
        closed = {"window": "5h", "resets_at": opened + 5 * HOUR, "source": "field", "confidence": 1.0}
        remember(
            *ran(f"old/{number}", opened, held), Event("window.closed", opened + held, "anthropic/max-1", None, closed)
        )

    shown = claude.run_json("forecast", plan)

    assert shown["basis"]["windows"] == {"max-1": [window("5h", 1.5 * HOUR, 5 * HOUR)]}


WORKSPACE = '[campaign.workspace]\nkind = "worktree"\nsetup = ["sleep", "0.2"]\n'


def test_a_replay_of_worktrees_setups_and_checks_takes_about_as_long_as_the_run_took(workspace: Workspace) -> None:
    subprocess.run(["git", "init", "-q", workspace.folder], check=True)
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    subprocess.run(["git", "-C", workspace.folder, *who, "commit", "-q", "--allow-empty", "-m", "begin"], check=True)
    head = f'check = ["sleep", "0.5"]\n{WORKSPACE}'
    workspace.run("run", workspace.plan("sleep 0.3; echo done > done", "a", head=head))

    shown = workspace.run_json("forecast", "--replay", "docs")

    basis = shown["basis"]
    assert (basis["unit_seconds"] > 0.3, basis["beside_seconds"] > 0.7) == (True, True)
    assert basis["unit_seconds"] + basis["beside_seconds"] == pytest.approx(shown["took"], abs=0.1)
    assert shown["finished_at"] - shown["now"] == pytest.approx(shown["took"], abs=0.1)


def test_a_check_takes_its_own_time_in_a_place_of_its_own(workspace: Workspace) -> None:
    """One session at once, and one check beside it: only the last check is waited for."""
    workspace.write("paceline.toml", "[pool]\nsessions = 1\n[limits]\nchecks = 1\n")
    plan = workspace.plan("true", "a", "b", "c", head='check = ["true"]\ncheck_timeout = "30s"\n')
    assumed = workspace.run_json("forecast", plan)
    begun = time.time() - HOUR
    started, done = ran("old/a", begun, 300, scope="agent:command")
    remember(started, Event("unit.checked", begun + 300, None, "old/a", {"seconds": 200.0, "round": 1}), done)

    known = workspace.run_json("forecast", plan)

    assert (assumed["basis"]["beside_seconds"], round(assumed["finished_at"] - assumed["now"])) == (30, 3 * 600 + 30)
    assert (known["basis"]["unit_seconds"], known["basis"]["beside_seconds"]) == (100, 200)
    assert round(known["finished_at"] - known["now"]) == 100 + 3 * 200  # here the checks are what takes long
    assert (
        "about 100 s each (from 1 of agent:command), and 3 min for setup and checks\n"
        in workspace.run("forecast", plan).output
    )


def test_what_is_assumed_of_checks_is_not_told_as_a_fact(workspace: Workspace) -> None:
    plan = workspace.plan("true", "a", head='check = ["true"]\n')

    shown = workspace.run("forecast", plan).output

    assert (
        "(assumed: nothing has run yet), and 60 s for setup and checks (assumed: none has been measured yet)" in shown
    )
    assert workspace.run_json("forecast", plan)["basis"]["is_beside_known"] is False


def test_the_time_of_a_check_is_that_of_other_campaigns_with_the_same_check(claude: Workspace) -> None:
    """The plan's model has run before, without a check."""
    check = 'check = ["true"]\n'
    claude.run_json("add", claude.plan("true", "a", head=check))
    claude_plan(claude, 1)
    text = claude.folder.joinpath("docs.toml").read_text().replace(MAX_1, MAX_1 + check).replace("docs", "other")
    begun = time.time() - HOUR
    started, done = ran("docs/a", begun, 300, scope="agent:command")
    checked = Event("unit.checked", begun + 300, None, "docs/a", {"seconds": 200.0, "round": 1})
    remember(*ran("old/a", begun, 100), started, checked, done)

    basis = claude.run_json("forecast", claude.write("other.toml", text))["basis"]

    assert (basis["unit_seconds"], basis["beside_seconds"], basis["is_beside_known"]) == (100, 200, True)


def test_a_plan_takes_about_as_long_as_the_forecast_said_before_it_ran(workspace: Workspace) -> None:
    """Within a factor of three: another program may have all of the machine while one of them runs."""
    subprocess.run(["git", "init", "-q", workspace.folder], check=True)
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    subprocess.run(["git", "-C", workspace.folder, *who, "commit", "-q", "--allow-empty", "-m", "begin"], check=True)
    workspace.write("paceline.toml", "[pool]\nsessions = 1\n[limits]\nchecks = 1\n")
    head = f'check = ["sleep", "0.3"]\n{WORKSPACE}'
    script = "sleep 0.3; echo done > done"
    workspace.run("run", workspace.plan(script, "a", head=head))
    plan = workspace.plan(script, "b", "c", name="tests", head=head)

    said = workspace.run_json("forecast", plan)
    begun = time.time()
    workspace.run("run", plan)
    took = time.time() - begun

    assert took / 3 < said["finished_at"] - said["now"] < took * 3
