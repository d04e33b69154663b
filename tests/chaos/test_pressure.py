"""Four kinds of pressure on the database: the engine goes on or waits, and ends within 15 s when it is asked to."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest
from tests.chaos.fleet import EXIT_SECONDS, Fleet, fleet_in
from tests.cli.shell import Shell
from tests.cli.shell import shell as shell
from tests.postgres_server import PostgresServer, running_server

from paceline.engine import command_log
from paceline.errors import StoreBusy
from paceline.events import Event
from paceline.store import Campaign, UnitSpec
from paceline.store.postgres import PostgresStore
from paceline.store.postgres_database import WRITER_LOCK

pytestmark = pytest.mark.chaos

UNITS = 100
BURST = 50_000
COMMANDS = 5_000
LOCKS = {
    "the writer's lock": f"SELECT pg_advisory_xact_lock({WRITER_LOCK})",
    "the leader": "SELECT 1 FROM leader FOR UPDATE",
    "the units": "LOCK TABLE units",
}


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with running_server() as made:
        yield made


@pytest.fixture
def fleet(shell: Shell, server: PostgresServer) -> Iterator[Fleet]:
    with fleet_in(shell, server, units=UNITS) as made:
        yield made


def stop_and_finish(fleet: Fleet, name: str, release: Callable[[], object] = lambda: None) -> None:
    """Stop the engine under pressure, then run the rest without it."""
    seconds = fleet.stop()
    release()
    fleet.start()
    fleet.finish()
    fleet.check_all_done_once()
    print(f"\n{name}: clean exit in {seconds:.1f} s, {UNITS} units done once, 0 lost, 0 doubled")
    assert seconds < EXIT_SECONDS


def in_threads(work: Callable[[PostgresStore, int], object], fleet: Fleet, threads: int) -> contextlib.ExitStack:
    """Repeat `work` in threads with a store each, until the stack is closed."""
    over = threading.Event()

    def repeat(number: int) -> None:
        with fleet.store() as store:
            while not over.is_set():
                with contextlib.suppress(StoreBusy):
                    work(store, number)

    running = [threading.Thread(target=repeat, args=(number,)) for number in range(threads)]
    stack = contextlib.ExitStack()
    for each in running:
        each.start()
        stack.callback(each.join)
    stack.callback(over.set)
    return stack


def test_a_client_that_stands_still_in_a_transaction(fleet: Fleet) -> None:
    fleet.work(5)
    with contextlib.ExitStack() as blocker:
        for lock in LOCKS.values():
            with psycopg.connect(fleet.server.url) as other:
                other.execute(lock)
                fleet.pass_time(4.0)
            fleet.work(2)  # it goes on by itself
        other = blocker.enter_context(psycopg.connect(fleet.server.url))
        for lock in LOCKS.values():
            other.execute(lock)
        fleet.pass_time(1.0)

        assert "nothing starts; running sessions continue: another process is writing" in fleet.log
        stop_and_finish(fleet, "idle-in-transaction blocker", blocker.close)


def test_clients_that_add_work_all_the_time(fleet: Fleet) -> None:
    paused = Campaign(name="later", state="paused")

    def add_work(store: PostgresStore, client: int) -> None:
        now = time.time()
        specs = [UnitSpec(id=f"{client}-{now}-{number}") for number in range(20)]
        store.add_campaign(paused, specs, update=False, now=now)
        command_log.send(store, "campaigns", now=now)

    with in_threads(add_work, fleet, 3) as load:
        fleet.work(20)
        stop_and_finish(fleet, "sustained load", load.close)


def test_readers_that_hold_an_old_state(fleet: Fleet) -> None:
    with contextlib.ExitStack() as readers:
        for _ in range(3):
            reader = readers.enter_context(psycopg.connect(fleet.server.url))
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT count(*) FROM units, events")
        fleet.work(30)
        stop_and_finish(fleet, "long readers")


def test_a_burst_of_events_and_commands(fleet: Fleet) -> None:
    fleet.work(5)
    now = time.time()
    with fleet.store() as store:
        store.append_events([Event("slot.waiting", now, None, None, {"n": number}) for number in range(BURST)])
        commands = [command_log.event_of("campaigns", now=now) for _ in range(COMMANDS)]
        store.append_events(commands)
    stop_and_finish(fleet, "event burst")
