"""Engines and commands of two versions of Paceline on one PostgreSQL database, each a process of its own."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.cli.conftest import TERMINAL_ENV, Workspace, decode_lines, finish, lines_of, read_until
from tests.cli.test_wiring_postgres import as_address
from tests.postgres_server import empty_schema

OLD = [f"old{number}" for number in range(20)]
NEW = [f"new{number}" for number in range(5)]
WORK = "echo {id} >> starts; test {id} = old3 || exit 0; while ! test -e go; do sleep 0.05; done"
"""One unit runs until the file `go` is there."""


@pytest.fixture(autouse=True)
def database(postgres_url: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with empty_schema(postgres_url) as url:
        monkeypatch.setenv("PACELINE_STORE_URL", as_address(url))
        yield


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
