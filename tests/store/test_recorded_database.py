"""A database file that version 1 wrote: today's code opens it and answers as recorded.

It holds campaigns with done, requeued, quarantined, held, parked, cancelled and waiting units, limits and a cooldown
that were set live, slots of other programs, and a Governor snapshot with a closed window, a hold, a learnt and a
platform limit. The file itself is never rewritten: users have such files.
"""

import shutil
from pathlib import Path

import pytest
from tests.golden.command import Home, Script
from tests.golden.recording import Recordings

DATABASE = Path(__file__).parent / "recorded" / "paceline_v1.db"
SETTINGS = """\
[pool]
sessions = 2
[limits]
"anthropic/*/opus-*" = 3
[accounts.work]
provider = "acme"
kind = "subscription"
"""
CAMPAIGNS = ("gone", "docs", "login", "quota", "person")
UNITS = (
    "gone/never",
    "docs/good",
    "docs/bad",
    "docs/later",
    "login/held",
    "quota/spent",
    "quota/behind",
    "person/held",
    "person/waits",
)


@pytest.fixture
def script(tmp_path: Path) -> Script:
    home = Home(tmp_path)
    home.write("paceline.toml", SETTINGS)
    (tmp_path / "home").mkdir(mode=0o700)
    shutil.copy(DATABASE, tmp_path / "home" / "paceline.db")
    return Script(home)


def test_a_recorded_database_is_shown_as_recorded(script: Script, recordings: Recordings) -> None:
    script.value("list")
    script.value("status")
    for campaign in CAMPAIGNS:
        script.value("units", campaign)
    script.value("limits")
    for unit in UNITS:
        script.value("why", unit)
    script.value("events", "--after", "0", "--limit", "1000")

    recordings.compare("paceline_v1_shown", script.values)


def test_a_recorded_database_is_steered_as_recorded(script: Script, recordings: Recordings) -> None:
    script.value("retry", "person")
    script.value("resume", "person")
    script.value("cancel", "quota")
    script.value("restore", "acme/work")
    script.value("limit", "umans", "default")
    script.value("delete", "gone", "--yes")
    script.value("list")
    script.value("limits")

    recordings.compare("paceline_v1_steered", script.values)
