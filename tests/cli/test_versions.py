"""Engines and commands of two versions of Paceline on one PostgreSQL database, each a process of its own."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import TERMINAL_ENV, Workspace, decode_lines, finish, lines_of, read_until
from tests.cli.test_wiring_postgres import as_address
from tests.fleet import PATIENCE_SECONDS, Fleet, fleet_in, until
from tests.postgres_server import empty_schema

from paceline.store.schema import MIGRATIONS

OLD = [f"old{number}" for number in range(20)]
NEW = [f"new{number}" for number in range(5)]
WORK = "echo {id} >> starts; test {id} = old3 || exit 0; while ! test -e go; do sleep 0.05; done"
"""One unit runs until the file `go` is there."""


@pytest.fixture
def database(postgres_url: str) -> Iterator[str]:
    with empty_schema(postgres_url) as url:
        yield as_address(url)


@pytest.fixture
def workspace(workspace: Workspace, database: str, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setenv("PACELINE_STORE_URL", database)
    return workspace


@pytest.fixture
def fleet(tmp_path: Path, database: str) -> Iterator[Fleet]:
    with fleet_in(tmp_path, database) as made:
        (tmp_path / "paceline.toml").write_text("[pool]\nsessions = 2\n")
        yield made


def newer(workspace: Workspace, kind: str, *argv: object) -> "subprocess.CompletedProcess[str]":
    """Run a command of the next version."""
    return subprocess.run(
        [sys.executable, "-m", "tests.cli.newer_paceline", kind, *map(str, argv)],
        env={**os.environ, **TERMINAL_ENV, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=workspace.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_an_engine_works_on_after_a_newer_version_has_added_to_the_schema(workspace: Workspace) -> None:
    workspace.write("paceline.toml", "[pool]\nsessions = 2\n")
    run = workspace.start("run", workspace.plan(WORK, *OLD, name="old"))
    read_until(run, "done old/")

    added = newer(workspace, "additive", "add", workspace.plan("echo {id} >> starts", *NEW, name="new"))
    workspace.write("go", "")
    code, _, said = finish(run)
    newer(workspace, "additive", "run", "new.toml")

    assert (added.returncode, code, "Traceback" in said, "failed" in said) == (0, 0, False, False)
    assert Counter(lines_of(workspace.folder / "starts")) == Counter([*OLD, *NEW])
    events = decode_lines(workspace.run("events", "--json", "--limit", 1000).stdout)
    done = [event["unit"] for event in events if event["name"] == "unit.done"]
    assert Counter(done) == Counter([*(f"old/{name}" for name in OLD), *(f"new/{name}" for name in NEW)])
    assert [event["id"] for event in events] == list(range(1, len(events) + 1))


def test_a_newer_version_breaks_no_engine_that_works(workspace: Workspace) -> None:
    workspace.write("paceline.toml", "[pool]\nsessions = 2\n")
    run = workspace.start("run", workspace.plan(WORK, *OLD, name="old"))
    read_until(run, "done old/")

    refused = newer(workspace, "breaking", "list")
    workspace.write("go", "")
    code, _, _ = finish(run)
    updated = newer(workspace, "breaking", "list")

    assert (refused.returncode, code, updated.returncode) == (75, 0, 0)
    assert "of an older Paceline leads" in refused.stderr
    assert Counter(lines_of(workspace.folder / "starts")) == Counter(OLD)
    assert "was updated by a newer Paceline" in workspace.run("list", code=1).stderr


def test_an_engine_that_missed_an_update_stores_nothing_more_and_says_why(workspace: Workspace) -> None:
    workspace.write("paceline.toml", '[engine]\nheartbeat = "200ms"\nlease = "1s"\n')
    run = workspace.start("run", workspace.plan(WORK, *OLD, name="old"))
    read_until(run, "done old/")
    run.send_signal(signal.SIGSTOP)
    while (updated := newer(workspace, "breaking", "list")).returncode == 75:
        assert "of an older Paceline leads" in updated.stderr  # its lease has not run out yet
    before = newer(workspace, "breaking", "events", "--json").stdout

    run.send_signal(signal.SIGCONT)
    code, _, said = finish(run)

    assert (updated.returncode, code, "Traceback" in said) == (0, 1, False)
    assert "was updated by a newer Paceline" in said
    assert newer(workspace, "breaking", "events", "--json").stdout == before
    workspace.write("go", "")


def test_engines_are_restarted_one_by_one_with_a_newer_version_and_back(fleet: Fleet) -> None:
    units = 16
    old = fleet.up("a")
    until(lambda: old.state == "leading")
    fleet.run("add", fleet.plan("echo {id} >> starts; sleep 0.5; echo {id} >> ends", units), env=old.env)
    until(lambda: fleet.lines("ends"))

    newer = fleet.up("b", program=("tests.cli.newer_paceline", "additive"))
    assert (old.state, newer.state) == ("leading", "standby")
    old.signal(signal.SIGTERM)
    until(lambda: newer.state == "leading")
    older_again = fleet.up("a")
    assert older_again.state == "standby"
    newer.signal(signal.SIGTERM)
    until(lambda: older_again.state == "leading")
    until(lambda: older_again.status()["units"]["done"] == units)

    expected = Counter(f"u{number}" for number in range(units))
    assert (Counter(fleet.lines("starts")), Counter(fleet.lines("ends"))) == (expected, expected)
    assert [member.process.wait(PATIENCE_SECONDS) for member in (old, newer)] == [0, 0]


def test_a_process_that_stands_by_ends_after_an_update_that_it_cannot_follow(fleet: Fleet) -> None:
    leader, standby = fleet.up("a"), fleet.up("b")
    until(lambda: leader.state == "leading")
    standby.signal(signal.SIGSTOP)
    leader.signal(signal.SIGTERM)
    assert leader.process.wait(PATIENCE_SECONDS) == 0
    newer = fleet.up("a", program=("tests.cli.newer_paceline", "breaking"))
    until(lambda: newer.state == "leading")

    standby.signal(signal.SIGCONT)

    _, said = standby.process.communicate(timeout=PATIENCE_SECONDS)
    assert (standby.process.returncode, "Traceback" in said) == (1, False)
    known = len(MIGRATIONS)
    assert f"was updated by a newer Paceline (schema {known + 1}, this one knows {known}): upgrade" in said
    assert newer.state == "leading"
