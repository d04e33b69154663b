"""PostgreSQL as it is in production: servers that restart, connections that break, other programs, mistakes."""

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TypeVar

import psycopg
import pytest
from tests.postgres_server import empty_schema, end_connections, running_server

from paceline.errors import (
    InvalidSettings,
    PacelineError,
    StoreBusy,
    StoreError,
    StoreTooNew,
    StoreUnreachable,
)
from paceline.events import Event
from paceline.store import Campaign, UnitSpec
from paceline.store.postgres import PostgresStore
from paceline.store.schema import MIGRATIONS, Migration
from paceline.testing.store_steps import add, claim, names, specs

Answer = TypeVar("Answer")
PATIENCE_SECONDS = 60.0


@pytest.fixture
def url(postgres_url: str) -> Iterator[str]:
    with empty_schema(postgres_url) as found:
        yield found


@contextlib.contextmanager
def opened(url: str, *, busy_seconds: float = 2.0) -> Iterator[PostgresStore]:
    store = PostgresStore(url, busy_seconds=busy_seconds)
    try:
        yield store
    finally:
        store.close()


def eventually(verb: Callable[[], list[Answer]]) -> list[Answer]:
    """The answer of a verb once the server is back. The pool connects again by itself, within a bound of its own."""
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < give_up_at:
        with contextlib.suppress(StoreUnreachable):
            return verb()
    return verb()


def test_a_store_survives_restarts_of_its_server() -> None:
    with running_server() as server, opened(server.url) as store:
        add(store, specs("a", "b"))
        server.stop("immediate")
        with pytest.raises(StoreUnreachable, match="does not answer"):
            claim(store)
        server.start()

        assert names(eventually(lambda: claim(store, 2))) == ["a", "b"]


def test_a_store_survives_the_end_of_its_connections(url: str) -> None:
    with opened(url) as store:
        add(store, specs("a"))
        end_connections(url)

        assert names(eventually(lambda: claim(store))) == ["a"]


def test_a_transaction_whose_connection_breaks_changes_nothing(url: str) -> None:
    with opened(url) as store:
        add(store, specs("a"))

        def claim_twice() -> None:
            with store.together():
                claim(store)
                end_connections(url)
                claim(store)

        with pytest.raises(StoreUnreachable):
            claim_twice()
        assert names(eventually(lambda: claim(store))) == ["a"]


def test_a_unit_that_somebody_has_locked_is_passed_over(url: str) -> None:
    with opened(url) as store:
        add(store, specs("a", "b"))
        with psycopg.connect(url) as other:
            other.execute("SELECT 1 FROM units WHERE name = 'a' FOR UPDATE")
            first = names(claim(store, 2))

        assert (first, names(claim(store, 2))) == (["b"], ["a"])


def test_a_writer_that_never_ends_makes_the_store_busy(url: str) -> None:
    with opened(url) as first, opened(url, busy_seconds=0.05) as second, first.together():
        add(first, specs("a"))
        with pytest.raises(StoreBusy, match=r"another process is writing to postgresql://.*0\.05 s"):
            second.append_events([Event("engine.leading", 1.0)])


def test_two_imports_of_one_campaign_do_not_mix(url: str) -> None:
    many = [UnitSpec(id=str(number)) for number in range(600)]
    with opened(url) as first, opened(url) as second:
        steps = first.add_campaign_in_steps(Campaign(name="night"), many, update=False, now=1.0)
        next(steps)
        with pytest.raises(StoreBusy, match="another process is adding units to night"):
            second.add_campaign(Campaign(name="night"), many, update=False, now=1.0)
        for _ in steps:
            pass

        assert second.counts()["night"].todo == 600


def test_a_schema_of_a_newer_paceline_is_not_touched(url: str) -> None:
    newer = (*MIGRATIONS, Migration(("CREATE TABLE of_tomorrow (x INTEGER)",), is_additive=False))
    PostgresStore(url, migrations=newer).close()

    with pytest.raises(StoreTooNew, match=rf"schema {len(newer)}, this one knows {len(MIGRATIONS)}"):
        PostgresStore(url)


def test_an_older_schema_is_updated_with_what_is_in_it(url: str) -> None:
    with opened(url) as store:
        add(store, specs("a"))
    newer = (*MIGRATIONS, Migration(("ALTER TABLE units ADD COLUMN of_tomorrow INTEGER",), is_additive=False))
    with contextlib.closing(PostgresStore(url, migrations=newer)) as store:
        assert names(claim(store)) == ["a"]


@pytest.mark.parametrize("table", ["orders", "paceline", "schema_version"])
def test_tables_of_another_program_are_not_touched(url: str, table: str) -> None:
    with psycopg.connect(url, autocommit=True) as other:
        other.execute(f"CREATE TABLE {table} (x INTEGER)")

    with pytest.raises(InvalidSettings, match=rf"has tables of another program \({table}\); choose another database"):
        PostgresStore(url)

    with psycopg.connect(url) as other:
        tables = other.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()").fetchall()
    assert tables == [(table,)]


def test_a_server_that_is_too_old_is_not_used(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.store.postgres_database.OLDEST_SERVER", 990000)

    with pytest.raises(InvalidSettings, match=r"is PostgreSQL \d\d; Paceline needs 99 or newer"):
        PostgresStore(url)

    with psycopg.connect(url) as other:
        assert other.execute("SELECT 1 FROM pg_tables WHERE schemaname = current_schema()").fetchall() == []


@pytest.fixture
def reader(url: str, postgres_url: str) -> Iterator[str]:
    """The address of the schema for a user without any rights."""
    role = f"paceline_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN")
    yield role
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"DROP OWNED BY {role}")
        admin.execute(f"DROP ROLE {role}")


def test_a_user_without_rights_is_named_what_to_grant(url: str, reader: str) -> None:
    address = psycopg.conninfo.make_conninfo(url, user=reader)
    with psycopg.connect(url, autocommit=True) as admin:
        row = admin.execute("SELECT current_schema()").fetchone()
        assert row is not None
        with pytest.raises(StoreError, match=r"grant the user CREATE and USAGE on its schema"):
            PostgresStore(address)
        admin.execute(f"GRANT USAGE ON SCHEMA {row[0]} TO {reader}")
        with pytest.raises(
            StoreError, match=r"permission denied for schema .*; grant the user CREATE and USAGE on its"
        ):
            PostgresStore(address)
        PostgresStore(url).close()
        with pytest.raises(StoreError, match=r"permission denied for table .*; grant the user ALL on its tables"):
            PostgresStore(address)
        admin.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {row[0]} TO {reader}")

    with opened(address) as store, pytest.raises(StoreError, match=rf"{reader} may not change the table .*; grant"):
        store.check()


def test_a_missing_database_or_schema_is_to_be_created(url: str) -> None:
    with pytest.raises(StoreUnreachable, match=r'"nowhere" does not exist; create it, or correct store.url'):
        PostgresStore(psycopg.conninfo.make_conninfo(url, dbname="nowhere"))
    with pytest.raises(StoreError, match=r"create the schema that store.url names"):
        PostgresStore(psycopg.conninfo.make_conninfo(url, options="-csearch_path=nowhere"))


@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        ("postgresql://127.0.0.1:1/paceline", StoreUnreachable, "cannot connect to postgresql://127.0.0.1:1/paceline"),
        ("postgresql://127.0.0.1:1/paceline?sslmod=on", InvalidSettings, "sslmod"),
        ("postgresql://u:secret@127.0.0.1:1/paceline", StoreUnreachable, "start the server, or correct store.url"),
    ],
)
def test_a_wrong_address_is_explained_without_its_password(wrong: str, kind: type[PacelineError], words: str) -> None:
    with pytest.raises(kind, match=words) as raised:
        PostgresStore(wrong)
    assert "secret" not in str(raised.value)
