"""A home whose database is gone, empty, damaged or in use by an older engine: noticed, explained, left as it is."""

import contextlib
import os
import sqlite3
from pathlib import Path

import pytest
from tests.cli.conftest import Workspace

from paceline.daemon.home import open_home
from paceline.engine.capacity.governor_state import GOVERNOR_STATE
from paceline.errors import EngineBusy, StoreDamaged
from paceline.leadership.election import ENGINE, Leader, LeaderLock
from paceline.store import SqliteStore
from paceline.store.schema import MIGRATIONS, Migration

JOURNAL = ("", "-wal", "-shm")


def run_one_unit(workspace: Workspace) -> Path:
    workspace.run("run", workspace.plan("true", "a"))
    return workspace.home / "paceline.db"


@pytest.mark.parametrize(("is_deleted", "words"), [(True, "does not exist"), (False, "is empty")])
def test_a_database_that_is_gone_beside_a_filled_spool_is_no_new_home(
    workspace: Workspace, is_deleted: bool, words: str
) -> None:
    database = run_one_unit(workspace)
    for suffix in JOURNAL:
        Path(f"{database}{suffix}").unlink(missing_ok=True)
    if not is_deleted:
        database.touch()

    for command in (["run", workspace.folder / "docs.toml"], ["status"], ["exec", "--", "true"]):
        said = workspace.run(*command, code=1).stderr
        assert f"{words}, but" in said
        assert "has the output of 1 session: it was deleted or cut off. Restore a copy of it" in said

    assert (database.exists(), database.exists() and database.stat().st_size) == (not is_deleted, 0)
    assert "restore a copy" in workspace.run("doctor", code=1).stdout


def test_a_database_without_work_beside_a_filled_spool_is_named_by_every_command_and_left_as_it_is(
    workspace: Workspace,
) -> None:
    workspace.run("list")
    database = workspace.home / "paceline.db"
    before = database.read_bytes()
    run_one_unit(workspace)
    for suffix in JOURNAL:
        Path(f"{database}{suffix}").unlink(missing_ok=True)
    database.write_bytes(before)
    loss = f"{database} has no work, but {workspace.home}/spool has the output of 1 session: its -wal file may be lost."

    said = workspace.run("list")
    doctor = workspace.run_json("doctor", code=1)

    assert "No campaigns" in said.stdout
    assert said.stderr.startswith(f"Warning: {loss} Restore a copy of it, with its -wal file if there is one")
    assert loss.removesuffix(".") in [each["detail"] for each in doctor["findings"] if each["verdict"] == "wrong"]
    workspace.run("run", workspace.folder / "docs.toml")
    assert loss in (workspace.home / "paceline.log").read_text()
    assert workspace.run("list").stderr == ""


def test_an_empty_database_beside_its_journal_is_left_for_a_person(workspace: Workspace) -> None:
    workspace.home.mkdir()
    database, journal = workspace.home / "paceline.db", workspace.home / "paceline.db-wal"
    database.touch()
    journal.write_bytes(b"pages")

    assert "belongs to a database that had content" in workspace.run("list", code=1).stderr
    assert journal.read_bytes() == b"pages"


def test_an_empty_home_is_a_new_one(workspace: Workspace) -> None:
    workspace.home.mkdir()
    (workspace.home / "paceline.db").touch()

    assert workspace.run_json("list") == {"campaigns": []}


def test_an_older_database_is_not_updated_under_a_running_engine(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.leadership.election.TURN_SECONDS", 0.0)
    workspace.home.mkdir()
    SqliteStore(workspace.home / "paceline.db").close()
    newer = (*MIGRATIONS, Migration(("CREATE TABLE tomorrow (x INTEGER)",)))
    defaults = SqliteStore.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "migrations", newer)
    engine = LeaderLock(workspace.home, ENGINE)
    assert engine.take()
    engine.announce(Leader(owner="older", pid=4711, since=0.0))

    said = workspace.run("list", code=75).stderr
    with pytest.raises(EngineBusy, match=r"process 4711.*stop it first; it is of an older Paceline"), open_home():
        raise AssertionError("it must not open")

    assert "stop it first" in said
    assert schema_of(workspace) == len(MIGRATIONS)
    assert "stop the older engine" in workspace.run("doctor", code=1).stdout
    engine.release()
    assert workspace.run_json("list") == {"campaigns": []}
    assert schema_of(workspace) == len(newer)


def schema_of(workspace: Workspace) -> int:
    with contextlib.closing(sqlite3.connect(workspace.home / "paceline.db")) as connection:
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


@pytest.mark.parametrize("stored", [b'{"version": 99}', b'{"limits":', b"\xff"])
def test_every_command_explains_a_state_that_it_cannot_read(workspace: Workspace, stored: bytes) -> None:
    workspace.run("pool", "1")
    with open_home() as home:
        home.store.save_state(GOVERNOR_STATE, stored)
    plan = workspace.plan("true", "a")

    for command in (["run", plan], ["limits"], ["preview", plan], ["exec", "--", "true"], ["status"]):
        said = workspace.run(*command, code=2).stderr
        assert said.startswith("Error: what this home has learnt")
        assert "paceline restore --unreadable" in said

    assert "paceline restore --unreadable" in workspace.run("doctor", code=1).stdout
    with open_home() as home:
        assert home.store.load_state(GOVERNOR_STATE) == stored
    key = workspace.run_json("restore", "--unreadable")["key"]
    with open_home() as home:
        assert home.store.load_state(key) == stored
    workspace.run("limits")
    assert workspace.run_json("restore", "--unreadable")["key"] is None


def test_damage_is_reported_by_doctor_with_the_right_mend(workspace: Workspace) -> None:
    database = run_one_unit(workspace)
    with open_home() as home:
        assert home.store.counts()["docs"].done == 1
    size = database.stat().st_size
    with open(database, "r+b") as file:
        file.seek(8192)
        file.write(os.urandom(size - 8192))

    said = workspace.run("doctor", code=1).stdout

    assert "is damaged" in said
    assert ".recover" in said
    assert "set PACELINE_HOME" not in said
    with pytest.raises(StoreDamaged), open_home() as home:
        home.store.check()
