"""PostgreSQL as it is in production: servers that restart, connections that break, other programs, mistakes."""

import contextlib
import os
import struct
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TypeVar

import psycopg
import pytest
from psycopg.pq.abc import PGconn
from tests.postgres_server import empty_schema, end_connections, running_server

from paceline.errors import (
    OUTAGES,
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
from paceline.store.postgres_database import WRITER_LOCK, PostgresDatabase
from paceline.store.schema import MIGRATIONS, Migration
from paceline.testing.store_steps import add, claim, names, specs

Answer = TypeVar("Answer")
PATIENCE_SECONDS = 60.0


@pytest.fixture
def url(postgres_url: str) -> Iterator[str]:
    with empty_schema(postgres_url) as found:
        yield found


@contextlib.contextmanager
def opened(url: str, *, busy_seconds: float = 2.0, answer_seconds: float = 5.0) -> Iterator[PostgresStore]:
    store = PostgresStore(url, busy_seconds=busy_seconds, answer_seconds=answer_seconds)
    try:
        yield store
    finally:
        store.close()


def eventually(verb: Callable[[], list[Answer]]) -> list[Answer]:
    """The answer of a verb once the outage is over. The pool connects again by itself, within a bound of its own."""
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < give_up_at:
        with contextlib.suppress(*OUTAGES):
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


LOCK = f"SELECT pg_advisory_xact_lock({WRITER_LOCK})".encode()


def send_all(connection: PGconn) -> None:
    while connection.flush():
        pass


def stop_between_messages(connection: PGconn) -> None:
    send_all(connection)


def stop_in_a_message(connection: PGconn) -> None:
    send_all(connection)
    os.write(connection.socket, b"P" + struct.pack(">i", 1000) + b"SELECT")


def stop_before_an_answer_is_read(connection: PGconn) -> None:
    connection.send_query_params(b"SELECT repeat('x', 1000000) FROM generate_series(1, 20)", [])
    connection.pipeline_sync()
    send_all(connection)


def stop_in_the_transaction(connection: PGconn) -> None:
    connection.pipeline_sync()
    send_all(connection)


def run_a_long_statement(connection: PGconn) -> None:
    connection.send_query_params(b"SELECT pg_sleep(60)", [])
    connection.pipeline_sync()
    send_all(connection)


@contextlib.contextmanager
def writer(url: str, stop: Callable[[PGconn], None]) -> Iterator[None]:
    """A process that has the writer's lock, and sends nothing more."""
    with psycopg.connect(url, autocommit=True) as connection, psycopg.connect(url, autocommit=True) as other:
        connection.pgconn.enter_pipeline_mode()
        connection.pgconn.send_query_params(b"BEGIN", [])
        connection.pgconn.send_query_params(LOCK, [])
        stop(connection.pgconn)
        has_it = "SELECT 1 FROM pg_locks WHERE pid = %s AND locktype = 'advisory' AND granted"
        while not other.execute(has_it, (connection.info.backend_pid,)).fetchone():
            pass
        yield
        connection.close()  # else the driver would wait for the answers


@pytest.mark.parametrize(
    "stop", [stop_between_messages, stop_in_a_message, stop_before_an_answer_is_read, stop_in_the_transaction]
)
def test_a_process_that_is_frozen_in_the_middle_of_a_change_keeps_nobody_from_the_lead(
    url: str, stop: Callable[[PGconn], None], caplog: pytest.LogCaptureFixture
) -> None:
    with opened(url, busy_seconds=0.05, answer_seconds=1.0) as store, writer(url, stop):
        assert eventually(lambda: [store.lead("next", until=time.time() + 10, now=time.time())]) == [True]

    assert "sent nothing for 1 s, as one that is frozen; its connection (process" in caplog.text


def test_a_writer_whose_statement_takes_long_is_left_alone(url: str) -> None:
    with opened(url, busy_seconds=0.05, answer_seconds=1.0) as store, writer(url, run_a_long_statement):
        give_up_at = time.monotonic() + 2.0
        while time.monotonic() < give_up_at:
            with pytest.raises(StoreBusy):
                store.lead("next", until=time.time() + 10, now=time.time())


def test_no_transaction_that_others_wait_for_may_be_silent_for_long(url: str) -> None:
    limit = "SELECT current_setting('idle_in_transaction_session_timeout')"
    newer = (*MIGRATIONS, Migration((f"CREATE TABLE tomorrow AS {limit} AS most",), is_additive=True))
    with contextlib.closing(PostgresStore(url, migrations=newer)) as store:
        database = store.database
        assert isinstance(database, PostgresDatabase)
        with database.query() as connection:
            in_migration = connection.execute("SELECT most FROM tomorrow").fetchone()
        with database.apart() as connection:
            in_import = connection.execute(limit).fetchone()
            database.lock_writers(connection)
            at_its_end = connection.execute(limit).fetchone()

    assert (in_migration, in_import, at_its_end) == (("5s",), ("10min",), ("5s",))


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
