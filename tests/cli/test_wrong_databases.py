"""A `store.url` that names a wrong database, as a person meets it: a clear sentence, an exit code, nothing changed."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.cli.conftest import Workspace
from tests.cli.newer_paceline import NEXT
from tests.cli.test_wiring_postgres import as_address
from tests.postgres_server import empty_schema

from paceline.store.postgres import PostgresStore
from paceline.store.schema import MIGRATIONS


@pytest.fixture
def url(postgres_url: str) -> Iterator[str]:
    with empty_schema(postgres_url) as found:
        yield found


KNOWN = len(MIGRATIONS)


def _of_another_program(url: str) -> str:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE orders (x INTEGER)")
    return as_address(url)


def _from_the_future(url: str) -> str:
    PostgresStore(url, migrations=(*MIGRATIONS, NEXT["breaking"])).close()
    return as_address(url)


def _nowhere(url: str) -> str:
    return "postgresql://me:secret@127.0.0.1:1/paceline"


def _without_its_database(url: str) -> str:
    return as_address(url).replace("postgresql:///postgres?", "postgresql:///missing?")


def _without_its_schema(url: str) -> str:
    return f"{as_address(url)}_missing"


def _with_an_unknown_option(url: str) -> str:
    return f"{as_address(url)}&sslmod=on"


@pytest.mark.parametrize(
    ("wrong", "code", "said"),
    [
        (_of_another_program, 2, "has tables of another program (orders); choose another database or schema"),
        (_from_the_future, 1, f"was updated by a newer Paceline (schema {KNOWN + 1}, this one knows {KNOWN}): upgrade"),
        (_nowhere, 1, "start the server, or correct store.url"),
        (_without_its_database, 1, 'database "missing" does not exist; create it, or correct store.url'),
        (_without_its_schema, 1, "create the schema that store.url names"),
        (_with_an_unknown_option, 2, 'invalid URI query parameter: "sslmod"'),
    ],
)
def test_a_wrong_database_is_explained_and_left_alone(
    workspace: Workspace, url: str, monkeypatch: pytest.MonkeyPatch, wrong: object, code: int, said: str
) -> None:
    assert callable(wrong)
    monkeypatch.setenv("PACELINE_STORE_URL", wrong(url))
    plan = workspace.plan("touch started", "a")
    before = _tables(url)

    answers = [workspace.run(*argv, code=code).stderr for argv in (["list"], ["run", plan], ["up", "--port", "0"])]
    found = [each for each in workspace.run_json("doctor", code=1)["findings"] if each["what"] == "home"]

    assert [said in answer for answer in answers] == [True] * 3
    assert [(each["verdict"], said in each["detail"]) for each in found] == [("wrong", True)]
    assert "secret" not in f"{answers} {found}"
    assert _tables(url) == before
    assert not Path("started").exists()


def _tables(url: str) -> list[tuple[str, int]]:
    """The tables, and how many rows they have."""
    with psycopg.connect(url) as connection:
        names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1")
        return [(name, _count(connection, name)) for (name,) in names.fetchall()]


def _count(connection: "psycopg.Connection[tuple[object, ...]]", table: str) -> int:
    row = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    return 0 if row is None else int(str(row[0]))
