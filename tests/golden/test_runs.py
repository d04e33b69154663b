"""Campaigns that run to their end in the foreground: the events of each unit, and what is shown afterwards.

The order of events is recorded unit by unit, because how units interleave depends on the machine.
"""

from typing import Any

from tests.golden.command import Home, Script
from tests.golden.normal import normal
from tests.golden.plans import SPENT_ONCE, plan
from tests.golden.recording import Recordings


def events_by_unit(home: Home) -> dict[str, Any]:
    """Every stored event under its unit, or under its scope where it has no unit."""
    stored = home.give("events", "--json", "--after", "0", "--limit", "1000").json()
    sorted_out: dict[str, Any] = {}
    for event in stored:
        fields = {key: each for key, each in event.items() if key not in ("id", "at")}
        place = event["unit"] or event["scope"] or "engine"
        sorted_out.setdefault(place, []).append(normal(fields, home.folder))
    return dict(sorted(sorted_out.items()))


def test_units_that_end_well_fail_and_are_quarantined(script: Script, recordings: Recordings) -> None:
    units = {
        "good": "echo fine; echo aside >&2",
        "bad": "echo broken >&2; exit 3",
        "second": "test -e second || { touch second; exit 4; }",
        "written": "echo text > written.md",
        "unwritten": "true",
        "told": "echo $PACELINE_UNIT",
    }
    outputs = {"written": "written.md", "unwritten": "unwritten.md"}
    script.home.write("docs.toml", plan("docs", units, "max_attempts = 2", outputs=outputs))

    script.value("run", "docs.toml")
    recordings.compare("runs/events", events_by_unit(script.home))
    for command in ("list", "status"):
        script.look(command)
    script.value("units", "docs")
    script.value("units", "docs", "--state", "quarantined")
    for unit in units:
        script.value("why", unit)
        script.value("logs", unit)
    script.code("logs", "good", "--channel", "stdout")
    script.value("retry", "docs")
    script.value("units", "docs")
    script.value("cancel", "docs")
    script.value("run", "docs.toml")
    script.value("list")

    recordings.compare("runs/done_and_quarantined", script.values)
    recordings.compare_text("runs/done_and_quarantined", "\n".join(script.texts))


def test_a_unit_that_meets_a_spent_window_is_parked_and_resumed(script: Script, recordings: Recordings) -> None:
    script.home.write("docs.toml", plan("docs", {"spent": SPENT_ONCE}))

    script.value("run", "docs.toml")
    recordings.compare("runs/parked_events", events_by_unit(script.home))
    script.value("units", "docs")
    script.value("limits")

    recordings.compare("runs/parked", script.values)
