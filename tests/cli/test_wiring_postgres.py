"""A home whose store is a real PostgreSQL database."""

import re
import sys
import time
from collections import Counter
from collections.abc import Iterator

import psycopg
import pytest
from tests.cli.conftest import Workspace, decode_lines, finish, lines_of, read_until
from tests.daemon import RunDaemon
from tests.daemon import run_daemon as run_daemon
from tests.postgres_server import empty_schema, running_server

UNITS = [f"u{number}" for number in range(8)]
ALL_BUT_THE_FIRST_WAIT = "echo {id} >> starts; until [ {id} = u0 ] || [ -e go ]; do sleep 0.05; done"
"""There is work left when the server has stopped, however long that takes."""


@pytest.fixture
def database(postgres_url: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with empty_schema(postgres_url) as url:
        monkeypatch.setenv("PACELINE_STORE_URL", as_address(url))
        yield url


def as_address(conninfo: str) -> str:
    """The same as an address, which settings accept."""
    parts = dict(part.split("=", 1) for part in conninfo.replace("'", "").split(" ") if "=" in part)
    options = f"&options={parts['options'].replace('=', '%3D')}" if "options" in parts else ""
    return f"postgresql:///{parts['dbname']}?host={parts['host']}&user={parts['user']}{options}"


def test_a_plan_runs_on_postgres(workspace: Workspace, database: str) -> None:
    plan = workspace.plan("echo {id} >> starts", *UNITS)

    workspace.run("run", plan)

    units = workspace.run_json("units", "docs")["units"]
    assert {unit["id"]: unit["state"] for unit in units} == {f"docs/{name}": "done" for name in UNITS}
    assert Counter(lines_of(workspace.folder / "starts")) == Counter(UNITS)
    assert not (workspace.home / "paceline.db").exists()
    assert "wrong" not in {
        found["verdict"] for found in workspace.run_json("doctor")["findings"] if found["what"] == "home"
    }


def test_a_night_survives_a_restart_of_the_database(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.write("paceline.toml", "[pool]\nsessions = 2\n")
    plan = workspace.plan(ALL_BUT_THE_FIRST_WAIT, *UNITS)
    with running_server() as server:
        monkeypatch.setenv("PACELINE_STORE_URL", server.url)
        run = workspace.start("run", plan)
        read_until(run, "done docs/")
        server.stop("immediate")
        read_until(run, "does not answer")
        server.start()
        (workspace.folder / "go").touch()

        code, _, said = finish(run)

        assert (code, "Traceback" in said) == (0, False)
        assert Counter(lines_of(workspace.folder / "starts")) == Counter(UNITS)
        events = decode_lines(workspace.run("events", "--json").stdout)
        done = [event["unit"] for event in events if event["name"] == "unit.done"]
        assert Counter(done) == Counter(f"docs/{name}" for name in UNITS)


def test_commands_tell_what_the_engine_does_while_the_database_is_away(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = workspace.plan(ALL_BUT_THE_FIRST_WAIT, *UNITS)
    with running_server() as server:
        monkeypatch.setenv("PACELINE_STORE_URL", server.url)
        run = workspace.start("run", plan)
        read_until(run, "done docs/")
        server.stop("immediate")
        read_until(run, "nothing starts")

        said = workspace.run("why", "docs/u7", code=1).stderr
        run.terminate()
        code, _, errors = finish(run)

        assert re.search(
            rf"cannot connect to .*\. The engine of this home \(process {run.pid}\) waits for it since .* ago: "
            "nothing starts meanwhile, running sessions continue, and nothing is lost",
            said,
        )
        assert (code, "sessions that run continue without the engine" in errors) == (130, True)
        assert "The engine of this home" not in workspace.run("why", "docs/u7", code=1).stderr

        server.start()
        (workspace.folder / "go").touch()
        assert finish(workspace.start("run", plan))[0] == 0
        assert Counter(lines_of(workspace.folder / "starts")) == Counter(UNITS)


async def test_the_daemon_answers_at_once_while_the_database_is_away(
    run_daemon: RunDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.store.postgres_database.POOL_WAIT_SECONDS", 5.0)
    with running_server() as server:
        async with run_daemon(environ={"PACELINE_STORE_URL": server.url}) as daemon:
            daemon.add("docs", "true", "a")
            await daemon.until(lambda: daemon.counts("docs").done == 1)
            server.stop("immediate")

            begun = time.monotonic()
            answers = [await daemon.get("/v1/status", code=503) for _ in range(60)]
            assert await daemon.get("/healthz") == {"ok": True}
            seconds = time.monotonic() - begun
            server.start()

        assert seconds < 150.0  # half of what it would take to wait for a connection each time
        assert {answer["error"] for answer in answers} == {"unavailable"}
        assert re.fullmatch(
            r"postgresql://\S+ does not answer since \d\d:\d\d:\d\d UTC \(.+\); Paceline tries again by itself\. "
            "Nothing starts meanwhile, running sessions continue, and nothing is lost",
            answers[-1]["detail"],
        )


def test_a_second_home_joins_the_fleet(workspace: Workspace, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.run("add", workspace.plan("true", "a"))
    monkeypatch.setenv("PACELINE_HOME", str(workspace.folder / "other"))

    assert [each["name"] for each in workspace.run_json("list")["campaigns"]] == ["docs"]


def test_a_home_of_another_fleet_is_refused(
    workspace: Workspace, postgres_url: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.run("list")
    with empty_schema(postgres_url) as other:
        monkeypatch.setenv("PACELINE_STORE_URL", as_address(other))
        said = workspace.run("list", code=2).stderr

    assert f"{workspace.home} belongs to fleet " in said
    assert f"delete {workspace.home / 'fleet'} if the home is to join that fleet" in said


def test_a_home_of_a_fleet_begins_no_file_of_its_own(
    workspace: Workspace, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.run("list")
    monkeypatch.delenv("PACELINE_STORE_URL")

    said = workspace.run("list", code=2).stderr

    assert f"{workspace.home} belongs to a fleet on PostgreSQL" in said
    assert "set PACELINE_STORE_URL" in said
    assert not (workspace.home / "paceline.db").exists()


def test_sessions_do_not_get_the_password_of_the_database(
    workspace: Workspace, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = as_address(database).replace("&user=postgres", "&user=postgres&password=secret")
    monkeypatch.setenv("PACELINE_STORE_URL", address)

    workspace.run("run", workspace.plan("echo $PACELINE_STORE_URL > seen", "a"))

    assert lines_of(workspace.folder / "seen") == [address.replace("&password=secret", "")]


def test_missing_tables_end_the_engine(workspace: Workspace, database: str) -> None:
    workspace.run("add", workspace.plan("true", "a"))
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute("DROP TABLE slots")

    said = workspace.run("run", workspace.plan("true", "a"), code=1).stderr

    assert 'lacks tables that were there (relation "slots" does not exist' in said
    assert "restore a copy of it" in said


def test_an_empty_database_beside_a_filled_spool_is_no_new_home(
    workspace: Workspace, postgres_url: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.run("run", workspace.plan("true", "a"))
    with empty_schema(postgres_url) as other:
        monkeypatch.setenv("PACELINE_STORE_URL", as_address(other))
        assert "the database is empty, but" in workspace.run("list", code=1).stderr


def test_a_missing_driver_is_named_with_its_installation(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_STORE_URL", "postgresql://localhost/paceline")
    for name in [name for name in sys.modules if name.startswith(("psycopg", "paceline.store.postgres"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)

    assert "pip install 'paceline[postgres]'" in workspace.run("list", code=2).stderr
