"""Servers and networks that hang, refuse or change, and pools in between: no wait is without end."""

import contextlib
import socket
import time
from collections.abc import Iterator

import psycopg
import pytest
from tests.link_proxy import LinkProxy
from tests.pgbouncer import needs_pgbouncer, running_pgbouncer
from tests.postgres_server import PostgresServer, empty_schema, running_server
from tests.store.test_postgres_database import eventually, opened

from paceline.errors import InvalidSettings, StoreBusy, StoreError, StoreUnreachable
from paceline.events import Event
from paceline.store.postgres import PostgresStore
from paceline.store.postgres_connection import server_place
from paceline.testing.store_steps import add, claim, names, specs

END_OURS = """SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity WHERE application_name = 'paceline'"""
"""Waits until they have ended."""
PATIENCE_SECONDS = 2.0
"""How long these stores wait for an answer: a busy server needs up to a second, and the tests wait as long."""
LEEWAY_SECONDS = 60.0
"""What a busy machine may add."""
EVENT = Event("engine.leading", 1.0)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_server(max_connections=12) as made:
        yield made


@pytest.fixture
def url(server: PostgresServer) -> Iterator[str]:
    with empty_schema(server.url) as found:
        yield found


@contextlib.contextmanager
def hasty(url: str) -> Iterator[PostgresStore]:
    with contextlib.closing(PostgresStore(url, answer_seconds=PATIENCE_SECONDS)) as store:
        yield store


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < seconds


def test_a_server_that_hangs_is_given_up(server: PostgresServer, url: str) -> None:
    with hasty(url) as store:
        add(store, specs("a"))
        with server.frozen():
            with (
                at_most(PATIENCE_SECONDS + LEEWAY_SECONDS),
                pytest.raises(StoreUnreachable, match=r"nothing came from the server within 2 s"),
            ):
                claim(store)

            with at_most(LEEWAY_SECONDS):
                for _ in range(100):  # each would wait again for a server that is known to be silent
                    with pytest.raises(StoreUnreachable):
                        store.counts()

        assert names(eventually(lambda: claim(store))) == ["a"]


def test_a_network_that_swallows_everything_is_given_up(server: PostgresServer) -> None:
    with LinkProxy(server.socket) as link, empty_schema(link.url) as url, hasty(url) as store:
        store.append_events([EVENT])
        link.stall()
        with at_most(PATIENCE_SECONDS + LEEWAY_SECONDS), pytest.raises(StoreUnreachable, match="nothing came"):
            store.append_events([EVENT])

        link.restore()

        assert eventually(lambda: [each.event for each in store.events()]) == [EVENT]


def test_one_outage_is_told_with_one_beginning(server: PostgresServer) -> None:
    with LinkProxy(server.socket) as link, hasty(link.url) as store:
        link.cut()
        with pytest.raises(StoreUnreachable, match=r"does not answer since \d\d:\d\d:\d\d UTC \(") as first:
            store.counts()
        with pytest.raises(StoreUnreachable) as second:
            store.counts()

        since = [str(each.value).partition(" UTC")[0] for each in (first, second)]
        assert since[0] == since[1]


def test_a_process_that_stands_still_in_a_transaction_does_not_block_the_others(url: str) -> None:
    with hasty(url) as still, contextlib.closing(PostgresStore(url, busy_seconds=60.0)) as other:

        def stand_still() -> None:
            with still.together():
                still.append_events([EVENT])
                other.append_events([EVENT])  # waits until the server has ended the transaction of the other
                still.append_events([EVENT])

        with pytest.raises(StoreUnreachable, match="idle-in-transaction timeout"):
            stand_still()

        assert [each.event for each in other.events()] == [EVENT]


def test_a_table_that_somebody_has_locked_makes_readers_busy_too(url: str) -> None:
    with contextlib.closing(PostgresStore(url, busy_seconds=0.1)) as store, psycopg.connect(url) as other:
        other.execute("LOCK TABLE units, tallies")
        with pytest.raises(StoreBusy, match="another process is writing"):
            store.counts()


def test_a_statement_that_takes_too_long_is_ended_by_the_server(url: str) -> None:
    with (
        contextlib.closing(PostgresStore(url, answer_seconds=PATIENCE_SECONDS, busy_seconds=60.0)) as store,
        psycopg.connect(url) as other,
    ):
        other.execute("LOCK TABLE units, tallies")
        with pytest.raises(StoreBusy, match="overloaded: it ended a statement that took too long"):
            store.counts()


def test_a_server_without_free_connections_is_named_as_such(server: PostgresServer, url: str) -> None:
    def take_all() -> None:
        with contextlib.suppress(psycopg.OperationalError):
            while True:
                others.enter_context(psycopg.connect(server.url, autocommit=True))

    def refusal() -> str:
        """Return what the store says when its connection has ended and all others are taken. It may be quicker."""
        admin.execute(END_OURS)
        take_all()
        try:
            store.counts()
        except StoreUnreachable as error:
            return str(error)
        return ""

    with opened(url) as store, contextlib.ExitStack() as others:
        add(store, specs("a"))
        admin = others.enter_context(psycopg.connect(server.url, autocommit=True))
        take_all()

        give_up_at = time.monotonic() + LEEWAY_SECONDS
        while "too many clients already" not in (said := refusal()):
            assert time.monotonic() < give_up_at, said

        others.close()

        assert names(eventually(lambda: claim(store))) == ["a"]


def test_a_server_that_became_a_replica_is_asked_again_until_it_takes_writes(server: PostgresServer, url: str) -> None:
    def set_read_only(value: str) -> None:
        with psycopg.connect(server.url, autocommit=True) as admin:
            admin.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
            admin.execute("SELECT pg_reload_conf()")

    with opened(url) as store:
        add(store, specs("a"))
        set_read_only("on")
        with psycopg.connect(server.url, autocommit=True) as admin:  # the reload reaches the others with this
            admin.execute("SELECT pg_sleep(0.2)")
        with pytest.raises(StoreUnreachable, match="it is read-only now, as a replica is"):
            claim(store)
        set_read_only("off")

        assert names(eventually(lambda: claim(store))) == ["a"]


def test_an_address_with_several_hosts_finds_the_one_that_takes_writes(server: PostgresServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        dead = taken.getsockname()[1]
    with LinkProxy(server.socket) as link:
        hosts = f"127.0.0.1:{dead},127.0.0.1:{link.port}"
        both = f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"
        with empty_schema(both) as url, hasty(url) as store:
            store.append_events([EVENT])

            assert server_place(f"postgresql://{hosts}/fleet") == f"postgresql://{hosts}/fleet"


def test_a_store_that_was_closed_says_so(url: str) -> None:
    store = PostgresStore(url)
    store.close()
    with pytest.raises(StoreError, match="was closed") as raised:
        store.counts()
    assert type(raised.value) is StoreError


@needs_pgbouncer
@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_a_pool_without_sessions_is_refused_and_nothing_is_changed(mode: str) -> None:
    with running_server() as fresh, running_pgbouncer(fresh, mode) as url:
        with pytest.raises(InvalidSettings, match=r"connection pool in transaction mode .* pool_mode = session"):
            PostgresStore(url)

        with psycopg.connect(fresh.url) as other:
            assert other.execute("SELECT 1 FROM pg_tables WHERE schemaname = 'public'").fetchall() == []


@needs_pgbouncer
def test_a_pool_with_sessions_works() -> None:
    with running_server() as fresh, running_pgbouncer(fresh, "session") as url, opened(url) as store:
        add(store, specs("a"))
        for _ in range(8):  # from the sixth on the statement is a prepared one
            store.append_events([EVENT])

        assert names(claim(store)) == ["a"]
