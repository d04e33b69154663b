"""`paceline store copy`, as a person moves a home."""

import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.cli.conftest import Workspace, decode_lines, finish, lines_of, park, read_until
from tests.cli.terminal import on_terminal
from tests.cli.test_wiring_postgres import as_address
from tests.postgres_server import empty_schema

from paceline.cli.wiring import FLEET_STATE, open_home
from paceline.leadership import HOST, LeaderLock
from paceline.store.table_copy import IDENTITY_STATE

UNITS = [f"u{number}" for number in range(6)]


@pytest.fixture
def server(postgres_url: str) -> Iterator[str]:
    with empty_schema(postgres_url) as url:
        yield as_address(url)


@pytest.fixture
def database(workspace: Workspace) -> Path:
    """The file of a home in which a plan ran: one unit failed, one is parked."""
    workspace.run("run", _plan(workspace, *UNITS), code=1)
    workspace.run("add", _plan(workspace, *UNITS, "parked"))
    park()
    return workspace.home / "paceline.db"


def _plan(workspace: Workspace, *units: str) -> Path:
    return workspace.plan("echo {id} >> starts; test {id} != u1", *units, head="max_attempts = 1")


def _seen(workspace: Workspace) -> tuple[Any, ...]:
    """What a person sees of the home."""
    units = workspace.run_json("units", "docs")["units"]
    shown = [workspace.run_json("show", unit["id"]) for unit in units]
    return units, shown, decode_lines(workspace.run("events", "--json").stdout), workspace.run_json("list")


@pytest.mark.parametrize("ways", [1, 2, 3])
def test_an_engine_continues_after_a_move(
    workspace: Workspace, database: Path, server: str, monkeypatch: pytest.MonkeyPatch, ways: int
) -> None:
    """To a server, back to a file, and to the same server again, which is emptied in between."""
    before = _seen(workspace)
    for way in range(ways):
        source, destination = (str(database), server) if way % 2 == 0 else (server, str(database))
        if way == 2:
            _empty(server)
        workspace.run("store", "copy", source, destination)
        if destination == server:
            database.unlink()
            monkeypatch.setenv("PACELINE_STORE_URL", server)
        else:
            monkeypatch.delenv("PACELINE_STORE_URL")

    assert _seen(workspace) == before
    _wake(workspace)
    run = workspace.start("run", _plan(workspace, *UNITS, "parked", "new"))

    code, _, said = finish(run)
    assert (code, "Traceback" in said) == (1, False)
    assert Counter(lines_of(workspace.folder / "starts")) == Counter([*UNITS, "parked", "new"])
    events = decode_lines(workspace.run("events", "--json", "--limit", 1000).stdout)
    assert events[: len(before[2])] == before[2]
    assert [event["id"] for event in events] == list(range(1, len(events) + 1))


def _empty(server: str) -> None:
    with psycopg.connect(server) as connection:
        names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()").fetchall()
        connection.execute(f"DROP TABLE {', '.join(name for (name,) in names)}")
        connection.execute("DROP FUNCTION tally_moves")


def _wake(workspace: Workspace) -> None:
    """Let the time of parked units come."""
    with open_home() as home:
        home.store.wake_units(now=time.time() + 7200.0)


def test_the_answer_counts_the_rows_and_names_the_next_step(workspace: Workspace, database: Path, server: str) -> None:
    shown = workspace.run_json("store", "copy", database, server)
    said = workspace.run("store", "copy", server, "new/folder/copy.db").stdout.splitlines()

    events = len(decode_lines(workspace.run("events", "--json").stdout))
    rows = {"campaigns": 1, "units": 7, "prompts": 7, "results": 6, "events": events, "slots": 0}
    assert {name: shown["rows"][name] for name in rows} == rows
    assert {name: shown[name] for name in ("ok", "source", "destination")} == {
        "ok": True,
        "source": f"sqlite:///{database}",
        "destination": server,
    }
    copy = workspace.folder / "new" / "folder" / "copy.db"
    assert said[0].startswith(f"copied 1 campaign, 7 units and {events} events in ")
    assert said[1:] == [
        f'Next: set store.url = "sqlite:///{copy}" in paceline.toml, or PACELINE_STORE_URL, and start the engine.',
        f"{server} is as it was. Run no engine on it again: it would do the same work twice.",
    ]
    assert copy.stat().st_mode & 0o777 == 0o600


def test_a_terminal_shows_the_progress(workspace: Workspace, database: Path, server: str) -> None:
    with on_terminal(workspace, "store", "copy", str(database), server) as terminal:
        assert terminal.wait_end() == 0
        assert b"comparing states" in terminal.raw


def test_a_home_in_use_is_not_copied(workspace: Workspace, database: Path, server: str) -> None:
    process = workspace.start("run", workspace.plan("sleep 60", "slow", name="slow"))
    read_until(process, "slow/slow")

    said = workspace.run("store", "copy", database, server, code=75).stderr

    assert f"(process {process.pid}) runs {workspace.home}: stop it first" in said
    with psycopg.connect(server) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
        assert tables.fetchall() == []


def test_a_server_in_use_is_not_copied(
    workspace: Workspace, database: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.run("store", "copy", database, server)
    monkeypatch.setenv("PACELINE_STORE_URL", server)
    read_until(workspace.start("run", workspace.plan("sleep 60", "slow", name="slow")), "slow/slow")

    said = workspace.run("store", "copy", server, "new.db", code=75).stderr

    assert re.search(r"the engine \S+ leads postgresql://\S+: stop it first, and whatever else uses it", said)


def test_an_address_that_was_tried_before_is_still_empty(
    workspace: Workspace, database: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database gets its identity at the first command. It is the one by which homes know it."""
    assert IDENTITY_STATE == FLEET_STATE
    monkeypatch.setenv("PACELINE_HOME", str(workspace.folder / "other"))
    monkeypatch.setenv("PACELINE_STORE_URL", server)
    workspace.run("list")
    monkeypatch.setenv("PACELINE_HOME", str(workspace.home))
    monkeypatch.delenv("PACELINE_STORE_URL")

    workspace.run("store", "copy", database, server)

    monkeypatch.setenv("PACELINE_STORE_URL", server)
    assert len(workspace.run_json("units", "docs")["units"]) == len(UNITS) + 1


@pytest.mark.parametrize("end", ["source", "destination"])
def test_a_home_whose_slots_an_exec_hands_out_is_not_copied(workspace: Workspace, database: Path, end: str) -> None:
    other = workspace.folder / "other"
    other.mkdir()
    lock = LeaderLock(database.parent if end == "source" else other, HOST)
    assert lock.take()

    said = workspace.run("store", "copy", database, other / "paceline.db", code=75).stderr

    lock.release()
    assert f"a `paceline exec` runs {database.parent if end == 'source' else other}: stop it first" in said
    assert not (other / "paceline.db").exists()


def test_the_lease_of_an_engine_that_was_killed_stops_no_copy(
    workspace: Workspace, database: Path, server: str
) -> None:
    process = workspace.start("run", workspace.plan("sleep 60", "slow", name="slow"))
    read_until(process, "slow/slow")
    process.kill()
    finish(process)

    workspace.run("store", "copy", database, server)


@pytest.mark.parametrize(
    ("source", "destination", "code", "said"),
    [
        ("none.db", "new.db", 2, "there is no database to copy at {folder}/none.db"),
        ("{database}", "{database}", 2, "SRC and DST are the same: sqlite:///{database}; name another database as DST"),
        ("mysql://x", "new.db", 2, "SRC 'mysql://x' must be sqlite:///PATH or postgresql://HOST/DATABASE, or a path"),
        ("sqlite:/x.db", "new.db", 2, "SRC 'sqlite:/x.db' must have three slashes before the path"),
        ("{database}", "postgresql://", 2, "DST 'postgresql://' must be sqlite:///PATH or postgresql://HOST/DATABASE"),
        ("{database}", "postgresql://me:secret@localhost:1/x", 1, "cannot connect to postgresql://localhost:1/x"),
        ("{database}", "{folder}/docs.toml", 1, "{folder}/docs.toml is damaged or not a database"),
        ("{database}", "{folder}/docs.toml/new.db", 1, "cannot create {folder}/docs.toml: "),
    ],
)
def test_a_wrong_address_is_named_and_nothing_is_changed(
    workspace: Workspace, database: Path, source: str, destination: str, code: int, said: str
) -> None:
    names = {"folder": workspace.folder, "database": database}
    before = _bytes_of(workspace.folder)

    answer = workspace.run("store", "copy", source.format(**names), destination.format(**names), code=code).stderr

    assert said.format(**names) in answer
    assert "secret" not in answer
    assert _bytes_of(workspace.folder) == before


def _bytes_of(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm", ".lock"))]
    return {str(path): path.read_bytes() for path in paths}


def test_a_password_is_not_shown(workspace: Workspace, database: Path, server: str) -> None:
    shown = workspace.run_json("store", "copy", database, f"{server}&password=secret")

    assert shown["destination"] == server


def test_a_database_of_an_older_paceline_is_updated_first(workspace: Workspace, server: str) -> None:
    recorded = sorted((Path(__file__).parents[2] / "store" / "recorded").glob("*.db"))[0]
    old = workspace.folder / "old.db"
    old.write_bytes(recorded.read_bytes())

    workspace.run("store", "copy", old, server)
    workspace.run("store", "copy", server, "new.db")
