"""Changes by other processes, as PostgreSQL announces them: LISTEN in a thread with a connection of its own.

Who writes announces it inside the same transaction, so nobody receives it before it can be read. Only what others
should know at once is announced: commands, new units, and the end of a lead. The ordinary events of a busy
engine are not.
"""

import functools
import logging
import selectors
import socket
import threading
from collections.abc import Callable
from typing import Final, get_args

import psycopg
from psycopg import sql

from paceline.store.interface import Topic
from paceline.store.postgres_connection import Connection

log = logging.getLogger("paceline.store")

TOPICS: Final[tuple[Topic, ...]] = get_args(Topic)
FIRST_PAUSE: Final = 0.2
"""Seconds before the first new attempt to connect: a connection that was ended comes back at once."""
LONGEST_PAUSE: Final = 2.0
"""Seconds between later attempts: a server that returns is found soon, one that is away is not bothered."""

_CHANNEL: Final = "(('paceline_' || current_schema())::name)::text"
"""Notifications reach the whole database, so each schema has a channel. `name` cuts it to the length of a name."""
_NOTIFY: Final = f"SELECT pg_notify({_CHANNEL}, %s)"

Subscriber = Callable[[Topic], object]


def announce(connection: Connection, topic: Topic) -> None:
    """Notify every subscriber once the caller's transaction is stored. If it is not, nobody is notified."""
    connection.execute(_NOTIFY, (topic,))


class PostgresNotifications:
    """The subscribers of one process. They share one thread and one connection, which exist while there are any."""

    def __init__(self, address: str, place: str) -> None:
        self._address = address
        self._place = place
        self._lock = threading.RLock()
        self._subscribers: dict[object, Subscriber] = {}
        self._listener: _Listener | None = None

    def subscribe(self, on_change: Subscriber) -> Callable[[], None]:
        """Call `on_change` from the thread with each topic, until the returned function is called."""
        key = object()
        with self._lock:
            self._subscribers[key] = on_change
            if self._listener is None:
                self._listener = _Listener(self._address, self._place, self._notify)
                self._listener.start()
        return functools.partial(self._end, key)

    def close(self) -> None:
        """End all subscriptions."""
        with self._lock:
            for key in list(self._subscribers):
                self._end(key)

    def _end(self, key: object) -> None:
        with self._lock:
            self._subscribers.pop(key, None)
            if not self._subscribers and self._listener is not None:
                self._listener.stop()
                self._listener = None

    def _notify(self, topic: Topic) -> None:
        with self._lock:  # so that nobody is called once its subscription has ended
            for on_change in list(self._subscribers.values()):
                try:
                    on_change(topic)
                except Exception:
                    log.exception("a subscriber to changes of %s failed", self._place)


class _Listener(threading.Thread):
    """Listens until stopped. It connects again by itself, then notifies of every topic: one may have been missed."""

    def __init__(self, address: str, place: str, notify: Subscriber) -> None:
        super().__init__(name="paceline-notifications", daemon=True)
        self._address = address
        self._place = place
        self._notify = notify
        self._stopped = threading.Event()
        self._wakes, self._waker = socket.socketpair()
        self._is_reported = False

    def stop(self) -> None:
        """End soon, without waiting for it."""
        self._stopped.set()
        self._waker.close()  # the other end becomes readable

    def run(self) -> None:
        pause = FIRST_PAUSE
        with self._wakes:
            while not self._stopped.is_set():
                try:
                    with Connection.connect(self._address) as connection:
                        self._begin(connection)
                        pause = FIRST_PAUSE
                        self._listen(connection)
                except (psycopg.Error, OSError) as error:
                    self._report(error)
                self._stopped.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _begin(self, connection: Connection) -> None:
        row = connection.execute(f"SELECT {_CHANNEL}").fetchone()
        assert row is not None
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(row[0])))
        if self._is_reported:
            self._is_reported = False
            log.info("%s announces changes again", self._place)
        for topic in TOPICS:
            self._notify(topic)

    def _listen(self, connection: Connection) -> None:
        """Notify of what is announced, until stopped or until the connection breaks, which raises."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._wakes, selectors.EVENT_READ)
            selector.register(connection.pgconn.socket, selectors.EVENT_READ)
            while not self._stopped.is_set():
                connection.pgconn.consume_input()
                while (announced := connection.pgconn.notifies()) is not None:
                    self._receive(announced.extra.decode())
                selector.select()

    def _receive(self, payload: str) -> None:
        for topic in TOPICS:
            if payload == topic:
                self._notify(topic)
                return
        log.debug("%s announces %r, which only a newer Paceline knows", self._place, payload)

    def _report(self, error: Exception) -> None:
        """Log the outage once."""
        if self._is_reported or self._stopped.is_set():
            return
        self._is_reported = True
        said = str(error).strip().partition("\n")[0] or type(error).__name__
        log.warning(
            "%s announces no changes (%s): until it does, commands of other processes wait for the next heartbeat",
            self._place,
            said,
        )
