"""`why`: what holds a unit, and what to do about it."""

import time

import pytest
from tests.cli.conftest import Place, finish, park, read_until

WAITING = "echo {id} >> starts; while [ ! -e go ]; do sleep 0.05; done"


def test_why_without_an_engine_says_so_and_what_to_do(place: Place) -> None:
    place.give("add", place.plan("true", "a"))

    why = place.ask("why", "a")

    assert (why["state"], why["reason"], why["hint"]) == ("waiting", "no_engine", "paceline run PLAN")


def test_why_of_a_parked_unit_has_its_reason_and_time(place: Place) -> None:
    place.give("add", place.plan("true", "a"))
    park(until=time.time() + 600)

    why = place.ask("why", "docs/a")

    assert (why["state"], why["reason"], why["detail"]) == ("parked", "parked", "the quota window is spent")
    assert why["until"] == pytest.approx(time.time() + 600, abs=60)
    assert "until" in place.give("why", "docs/a").stdout


def test_why_of_a_paused_campaign_names_the_command_that_goes_on(place: Place) -> None:
    place.give("add", place.plan("true", "a"))
    place.give("pause", "--all")

    assert place.ask("why", "a")["hint"] == "paceline resume docs"


def test_why_of_a_quarantined_unit_has_its_last_words_and_retry_mends_it(place: Place) -> None:
    plan = place.plan("test -e mended || { echo broken; exit 2; }", "a", head="max_attempts = 1")
    place.give("run", plan, code=1)

    why = place.ask("why", "a")
    (place.folder / "mended").touch()
    retried = place.ask("retry", "docs")
    place.give("run", plan)

    assert why["detail"] == "failed once, the last time with: exit code 2: broken"
    assert "paceline retry docs" in why["hint"]
    assert retried["retried"] == 1


def test_why_of_a_waiting_unit_is_what_the_engine_last_said(place: Place) -> None:
    engine = place.start("run", place.plan(WAITING, "a", "b", head="max_sessions = 1"))
    read_until(engine, "waits docs")

    waiting, running = place.ask("why", "b"), place.ask("why", "a")
    (place.folder / "go").touch()
    finish(engine)

    assert (waiting["reason"], waiting["scope"]) == ("limit", "campaign:docs")
    assert waiting["detail"] == "campaign:docs at its limit (1/1)"
    assert (running["state"], running["detail"]) == ("running", "its session runs on this machine")
