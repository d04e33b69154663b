"""`forecast`: the same engine in virtual time, on what this home has seen."""

import time

import pytest
from tests.cli.conftest import Place

from paceline.cli.wiring import open_home
from paceline.core import Governor, Ticket
from paceline.core.signals import QuotaClosed
from paceline.engine.remembered import save_governor
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


def claude_plan(place: Place, units: int) -> object:
    place.write("paceline.toml", SETTINGS)
    names = "\n".join(f'[[unit]]\nid = "u{n}"\nprompt = "do {n}"' for n in range(units))
    return place.write("docs.toml", f'[campaign]\nname = "docs"\n{MAX_1}\n{names}\n')


@pytest.fixture
def claude(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A claude on the path, so that the plan can run; the forecast starts nothing."""
    program = place.write("claude", "#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place.folder}:/usr/bin:/bin")
    return place


def test_without_history_it_says_what_it_assumes_and_which_pool_is_worth_it(place: Place) -> None:
    plan = place.plan("true", "a", "b", "c")

    told = place.ask("forecast", plan)

    assert (told["basis"]["units"], told["basis"]["tries_known"], told["basis"]["windows"]) == (3, 0, {})
    took = {size: round(each["finished_at"] - told["now"]) for size, each in told["pools"].items()}
    assert took == {"1": 1800, "2": 1200, "3": 600, "4": 600}
    assert (told["pool"], told["pool_worth_it"], told["parks"]) == (4, 3, 0)
    assert place.ask("list") == {"campaigns": []}  # nothing was stored


def test_durations_come_from_what_ran_with_the_same_model(claude: Place) -> None:
    plan = claude_plan(claude, 4)
    now = time.time()
    remember(
        *ran("old/a", now - 500, 100), *ran("old/b", now - 300, 200), *ran("old/c", now, 900, scope="agent:command")
    )

    told = claude.ask("forecast", plan)

    assert (told["basis"]["unit_seconds"], told["basis"]["tries_known"], told["basis"]["known_from"]) == (150, 2, PATH)


def test_a_window_that_was_spent_before_parks_the_plan_and_tells_when(claude: Place) -> None:
    """It held two hours of sessions in five; five hours and twenty minutes of work take a third one in part."""
    plan = claude_plan(claude, 8)
    begun = time.time() - 20 * HOUR
    closed = {"window": "5h", "resets_at": begun + 5 * HOUR, "source": "field", "confidence": 1.0, "probe_at": None}
    remember(
        *(event for name in "abc" for event in ran(f"old/{name}", begun, 2400.0)),
        Event("window.closed", begun + 2401, "anthropic/max-1", None, closed),
        Event("window.reopened", begun + 5 * HOUR, "anthropic/max-1", None, {"window": "5h"}),
    )

    told = claude.ask("forecast", plan)

    assert told["basis"]["windows"] == {"max-1": [window("5h", 2 * HOUR, 5 * HOUR)]}
    assert told["parks"] > 0
    first = told["closings"][0]
    assert first[0] == "anthropic/max-1"
    assert first[1] - told["now"] == pytest.approx(HOUR / 2, abs=120)  # four at once spend two hours in half of one
    assert first[2] - told["now"] == pytest.approx(5 * HOUR, abs=120)
    assert (told["finished_at"] - told["now"]) / HOUR == pytest.approx(10.4, abs=0.2)
    assert told["pool_worth_it"] == 2  # the window binds, not the pool


def test_what_the_governor_has_learnt_of_a_window_outranks_what_the_events_tell(claude: Place) -> None:
    plan = claude_plan(claude, 8)
    begun = time.time() - 4 * HOUR
    governor = Governor(now=begun)
    governor.request(Ticket("a", ("sessions", "anthropic", "anthropic/max-1")), now=begun)
    closed = QuotaClosed(window="5h", resets_at=begun + 5 * HOUR, source="field")
    governor.report("anthropic/max-1", closed, now=begun + HOUR)
    with open_home() as home:
        save_governor(home.store, governor)

    told = claude.ask("forecast", plan)

    assert told["basis"]["windows"] == {"max-1": [window("5h", HOUR, 5 * HOUR, used=HOUR, resets_at=begun + 5 * HOUR)]}


def test_a_replay_plays_what_ran_against_the_settings_of_now(place: Place) -> None:
    plan = place.plan("true", "a", "b")
    place.ask("add", plan)
    begun = time.time() - HOUR
    remember(*ran("docs/a", begun, 300, scope="agent:command"), *ran("docs/b", begun + 300, 300, scope="agent:command"))

    told = place.ask("forecast", "--replay", "docs")

    assert (told["basis"]["units"], told["took"]) == (2, 600)
    assert told["finished_at"] - told["now"] == pytest.approx(300, abs=1)  # side by side, it takes half the time


@pytest.mark.parametrize("argv", [(), ("docs.toml", "--replay", "docs"), ("--replay", "nothing")])
def test_wrong_use_is_refused(place: Place, argv: tuple[str, ...]) -> None:
    place.plan("true", "a")

    assert "Error" in place.give("forecast", *argv, code=2).output


def test_people_get_a_table(place: Place) -> None:
    told = place.give("forecast", place.plan("true", "a", "b")).output

    assert "docs: 2 units, about 10 min each (assumed: nothing has run yet)" in told
    assert "worth it" in told
