"""What processes hear of each other through PostgreSQL, also after their connections broke."""

import contextlib
import logging
import queue
import threading
from collections.abc import Iterator

import psycopg
import pytest
from tests.postgres_server import empty_schema, running_server

from paceline.errors import StoreUnreachable
from paceline.events import Event
from paceline.store.interface import Topic
from paceline.store.postgres import PostgresStore
from paceline.testing.store_steps import add, specs

PATIENCE_SECONDS = 60.0
COMMAND = Event("control.limit", 1.0, "sessions", None, {"limit": 1})
ORDINARY = Event("unit.done", 1.0, None, "night/a")
ANYTHING: list[Topic] = ["commands", "leader"]
"""What is heard after each connection: something may have been missed."""


class Heard:
    """What a subscriber was called with, in order."""

    def __init__(self) -> None:
        self._topics: queue.SimpleQueue[Topic] = queue.SimpleQueue()

    def __call__(self, topic: Topic) -> None:
        self._topics.put(topic)

    def next(self, count: int = 1) -> list[Topic]:
        return [self._topics.get(timeout=PATIENCE_SECONDS) for _ in range(count)]

    def is_empty(self) -> bool:
        return self._topics.empty()


@pytest.fixture
def url(postgres_url: str) -> Iterator[str]:
    with empty_schema(postgres_url) as found:
        yield found


@pytest.fixture
def here(url: str) -> Iterator[PostgresStore]:
    with contextlib.closing(PostgresStore(url)) as store:
        yield store


@pytest.fixture
def there(url: str) -> Iterator[PostgresStore]:
    """The store as another process opens it."""
    with contextlib.closing(PostgresStore(url)) as store:
        yield store


@pytest.fixture
def heard(here: PostgresStore) -> Heard:
    """A subscriber that listens already."""
    found = Heard()
    here.subscribe(found)
    assert found.next(2) == ANYTHING
    return found


def resign(store: PostgresStore) -> None:
    """Announce something that marks the end of what was announced before."""
    assert store.lead("another", until=2.0, now=1.0)
    store.resign("another")


def end_listeners(url: str) -> None:
    """End the connections that listen, as an administrator may."""
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")


def test_a_command_of_another_process_is_heard(there: PostgresStore, heard: Heard) -> None:
    there.append_events([ORDINARY, COMMAND])

    assert heard.next() == ["commands"]


def test_new_units_are_heard_and_known_ones_are_not(there: PostgresStore, heard: Heard) -> None:
    add(there, specs("a"))
    add(there, specs("a"))
    resign(there)

    assert heard.next(2) == ["commands", "leader"]


def test_ordinary_events_of_an_engine_are_not_heard(there: PostgresStore, heard: Heard) -> None:
    there.append_events([ORDINARY])
    resign(there)

    assert heard.next() == ["leader"]


def test_the_end_of_a_lead_that_nobody_had_is_not_heard(there: PostgresStore, heard: Heard) -> None:
    there.resign("nobody")
    there.append_events([COMMAND])

    assert heard.next() == ["commands"]


def test_a_change_that_is_not_stored_is_not_heard(there: PostgresStore, heard: Heard) -> None:
    with contextlib.suppress(KeyError), there.together():
        there.append_events([COMMAND])
        raise KeyError
    resign(there)

    assert heard.next() == ["leader"]


def test_a_change_can_be_read_once_it_is_heard(here: PostgresStore, there: PostgresStore, heard: Heard) -> None:
    there.append_events([COMMAND])
    heard.next()

    assert [stored.event for stored in here.events()] == [COMMAND]


def test_fleets_in_other_schemas_are_not_heard(postgres_url: str, there: PostgresStore, heard: Heard) -> None:
    with empty_schema(postgres_url) as other, contextlib.closing(PostgresStore(other)) as stranger:
        stranger.append_events([COMMAND])
    resign(there)

    assert heard.next() == ["leader"]


def test_a_subscriber_hears_again_after_its_connection_was_ended(url: str, there: PostgresStore, heard: Heard) -> None:
    end_listeners(url)
    missed = heard.next(2)
    there.append_events([COMMAND])

    assert (missed, heard.next()) == (ANYTHING, ["commands"])


def test_an_outage_is_logged_once_and_ends_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "paceline.store")
    heard = Heard()
    with running_server() as server, contextlib.closing(PostgresStore(server.url)) as store:
        store.subscribe(heard)
        heard.next(2)
        server.stop("immediate")
        with pytest.raises(StoreUnreachable):
            store.leader(now=0.0)
        server.start()

        assert heard.next(2) == ANYTHING
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "commands of other processes wait for the next heartbeat" in caplog.text
    assert "announces changes again" in caplog.text


def test_a_subscriber_that_fails_keeps_nothing_from_others(
    here: PostgresStore, there: PostgresStore, heard: Heard
) -> None:
    def fail(_: Topic) -> None:
        raise KeyError("of the subscriber")

    here.subscribe(fail)
    later = Heard()
    here.subscribe(later)
    there.append_events([COMMAND])

    assert (heard.next(), later.next()) == (["commands"], ["commands"])


def test_nothing_is_heard_after_the_end_and_the_connection_is_closed(here: PostgresStore, there: PostgresStore) -> None:
    first, second = Heard(), Heard()
    end_first = here.subscribe(first)
    first.next(2)
    end_second = here.subscribe(second)
    end_first()
    there.append_events([COMMAND])
    still_heard = second.next()
    (listener,) = [thread for thread in threading.enumerate() if thread.name == "paceline-notifications"]
    end_second()
    end_second()
    listener.join(PATIENCE_SECONDS)

    assert (still_heard, first.is_empty(), listener.is_alive()) == (["commands"], True, False)


def test_the_end_of_a_store_ends_its_subscriptions(url: str) -> None:
    store = PostgresStore(url)
    heard = Heard()
    store.subscribe(heard)
    heard.next(2)
    (listener,) = [thread for thread in threading.enumerate() if thread.name == "paceline-notifications"]
    store.close()
    listener.join(PATIENCE_SECONDS)

    assert not listener.is_alive()
