"""`cancel`: for good, and running sessions are ended."""

import json
import time

from tests.cli.conftest import Place, finish, read_until

WAITING = "echo {id} >> starts; while [ ! -e go ]; do sleep 0.05; done"


def test_cancel_is_for_good(place: Place) -> None:
    plan = place.plan("true", "a", "b")
    place.give("add", plan)

    assert place.ask("cancel", "docs")["cancelled"] == 2
    for command in (["resume", "docs"], ["retry", "docs"], ["run", plan], ["add", plan]):
        assert "cancelled" in place.give(*command, code=2).stderr


def test_cancel_without_an_engine_ends_what_still_runs(place: Place) -> None:
    engine = place.start("run", place.plan(WAITING, "a"))
    read_until(engine, "started docs/a")
    engine.kill()
    finish(engine)
    (status,) = place.home.glob("spool/*/status.json")

    assert place.ask("cancel", "docs")["running"] == ["docs/a"]

    deadline = time.monotonic() + 20
    while json.loads(status.read_text())["phase"] == "running":
        assert time.monotonic() < deadline
