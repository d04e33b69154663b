"""`export` and `import`: a home becomes one file, and the file a home."""

import os
import subprocess

import pytest
from tests.cli.conftest import Workspace
from tests.cli.test_wiring_postgres import as_address
from tests.postgres_server import empty_schema

from paceline.leadership.election import ENGINE, Leader, LeaderLock


def run_two_units(workspace: Workspace) -> None:
    workspace.run("run", workspace.plan("test {id} = good", "good", "bad", head="max_attempts = 1"), code=1)


@pytest.mark.parametrize("is_on_server", [False, True])
def test_a_home_goes_on_in_another_database(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, is_on_server: bool
) -> None:
    run_two_units(workspace)
    file = workspace.home.parent / "home.jsonl"
    before = workspace.run_json("units", "docs"), workspace.run("events", "--json").stdout

    assert "exported" in workspace.run("export", str(file)).stderr
    assert file.stat().st_mode & 0o777 == 0o600
    if is_on_server:
        monkeypatch.setenv("PACELINE_STORE_URL", as_address(request.getfixturevalue("empty_database")))
    else:
        for each in workspace.home.glob("paceline.db*"):
            each.unlink()
    assert workspace.run_json("import", str(file))["ok"]

    assert (workspace.run_json("units", "docs"), workspace.run("events", "--json").stdout) == before
    assert workspace.run_json("retry", "docs")["retried"] == 1
    said = workspace.run("import", str(file), code=2).stderr
    assert "is not empty (it has campaigns), so nothing was imported" in said


@pytest.fixture
def empty_database(postgres_url: str):  # type: ignore[no-untyped-def]
    with empty_schema(postgres_url) as url:
        yield url


def test_a_file_that_is_cut_off_is_refused(workspace: Workspace) -> None:
    run_two_units(workspace)
    text = workspace.run("export").stdout
    file = workspace.home.parent / "half.jsonl"
    file.write_text(text[: len(text) // 2])
    for each in workspace.home.glob("paceline.db*"):
        each.unlink()

    assert "cannot be read, so nothing was imported" in workspace.run("import", str(file), code=2).stderr

    file.write_text(text)
    assert "imported" in workspace.run("import", str(file)).stdout


def test_a_link_and_a_pipe_stay_what_they_are(workspace: Workspace) -> None:
    run_two_units(workspace)
    file, link, pipe = (workspace.folder / name for name in ("home.jsonl", "link", "pipe"))
    link.symlink_to(file)
    os.mkfifo(pipe)

    workspace.run("export", str(link))
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE)
    workspace.run("export", str(pipe))

    assert reader.communicate(timeout=30)[0] == file.read_bytes()
    assert link.is_symlink()
    assert pipe.is_fifo()


def test_nothing_is_imported_while_an_engine_runs(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.leadership.election.TURN_SECONDS", 0.0)
    file = workspace.home.parent / "home.jsonl"
    workspace.run("export", str(file))
    engine = LeaderLock(workspace.home, ENGINE)
    assert engine.take()
    engine.announce(Leader(owner="other", pid=4711, since=0.0))

    assert "4711" in workspace.run("import", str(file), code=75).stderr
    engine.release()


@pytest.mark.parametrize("command", ["export", "import"])
def test_a_place_that_cannot_be_used_is_named(workspace: Workspace, command: str) -> None:
    file = workspace.home.parent / "none" / "home.jsonl"

    assert f"{file}: No such file" in workspace.run(command, str(file), code=2).stderr
