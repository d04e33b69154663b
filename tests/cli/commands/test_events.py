"""`events`: lines for people, JSON for programs."""

import time

from tests.cli.conftest import Workspace, decode_lines, finish, read_until

from paceline.daemon.home import open_home
from paceline.events import Event


def test_events_come_as_lines_and_as_json(workspace: Workspace) -> None:
    workspace.run("run", workspace.plan("true", "a", "b"))

    names = [event["name"] for event in decode_lines(workspace.run("events", "--json").stdout)]
    of_one = decode_lines(workspace.run("events", "--unit", "a", "--json").stdout)
    last = workspace.run("events", "--limit", 1).stdout

    assert names[0] == "control.campaigns"
    assert names.count("unit.done") == 2
    assert [event["name"] for event in of_one] == ["unit.started", "unit.done"]
    assert "engine stopped" in last
    assert len(last.splitlines()) == 1


def test_an_event_that_names_a_time_beyond_the_calendar_is_a_line_as_any_other(workspace: Workspace) -> None:
    with open_home() as home:
        home.store.append_events(
            [Event(at=time.time(), name="window.closed", scope="umans", fields={"resets_at": 1e18})]
        )

    printed = workspace.run("events").stdout

    assert "window closed umans: resets at never" in printed


def test_fractions_in_events_are_as_long_as_people_read_them(workspace: Workspace) -> None:
    now = time.time()
    lost = Event(at=now, name="slot.lost", scope="umans", fields={"reclaimed_at": now - 2e-5})
    granted = Event(at=now, name="slot.granted", scope="umans", fields={"waited": 3.3036794662475586})
    with open_home() as home:
        home.store.append_events([lost, granted])

    first, second = workspace.run("events").stdout.splitlines()

    assert first.endswith("(0 s ago)")
    assert second.endswith("slot granted umans: waited 3.3")


def test_followed_events_come_as_they_happen(workspace: Workspace) -> None:
    plan = workspace.plan("true", "a")
    follower = workspace.start("events", "--follow")

    workspace.run("run", plan)

    assert "done docs/a" in read_until(follower, "engine stopped")


WAITING = "while [ ! -e go ]; do sleep 0.05; done"


def test_what_a_unit_waited_for_last_night_is_known_the_day_after(workspace: Workspace) -> None:
    engine = workspace.start("run", workspace.plan(WAITING, "a", "b", head="max_sessions = 1"))
    read_until(engine, "waits docs: campaign:docs at its limit (1/1)")
    (workspace.folder / "go").touch()
    finish(engine)

    of_all = workspace.run("events").stdout
    waited = decode_lines(workspace.run("events", "--unit", "b", "--json").stdout)
    at_once = decode_lines(workspace.run("events", "--unit", "a", "--json").stdout)
    last = decode_lines(workspace.run("events", "--unit", "b", "--limit", "1", "--json").stdout)
    why = {unit: workspace.run_json("why", unit).get("waited", []) for unit in "ab"}

    assert of_all.count("waits docs: campaign:docs at its limit (1/1)") == 1
    assert [each["name"] for each in waited] == ["slot.deferred", "unit.started", "unit.done"]
    assert [each["name"] for each in at_once] == ["unit.started", "unit.done"]
    assert last == waited[-1:]
    assert why == {"a": [], "b": waited[:1]}
    assert "before" in workspace.run("why", "b").stdout
