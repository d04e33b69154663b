"""Six faults, each in the middle of a night: afterwards the fleet is as fast as before, and every unit ran once."""

import contextlib
import time
from collections.abc import Iterator

import psycopg
import pytest
from tests.chaos.fleet import LONG_SESSION_SECONDS, POOL, RECOVERED_SHARE, Fleet, fleet_in
from tests.cli.shell import Shell
from tests.cli.shell import shell as shell
from tests.postgres_server import PostgresServer, end_connections, running_server

from paceline.leadership.election import SHARED_LEASE_SECONDS

pytestmark = pytest.mark.chaos

UNITS = 9 * POOL
BEFORE = 5 * POOL // 2
"""Units that end before the fault: 15 seconds of work."""
RECOVERY_SECONDS = 15.0
MAX_CONNECTIONS = 16


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with running_server(max_connections=MAX_CONNECTIONS) as made:
        yield made


@pytest.fixture
def fleet(shell: Shell, server: PostgresServer) -> Iterator[Fleet]:
    with fleet_in(shell, server, units=UNITS, session_seconds=LONG_SESSION_SECONDS) as made:
        yield made


@contextlib.contextmanager
def fault(fleet: Fleet, name: str) -> Iterator[None]:
    """Inject the fault of the block after a while, then require what was there before."""
    fleet.work(BEFORE)
    fault_at = time.time()
    yield
    over_at = time.time()
    fleet.finish()
    fleet.check_all_done_once()
    found = fleet.throughput(fault_at, over_at)
    print(
        f"\n{name}: {found.before:.2f} units/s before, {found.after:.2f} after ({found.share:.0%}), "
        f"first start {found.recovery:.1f} s after the fault of {over_at - fault_at:.1f} s, "
        f"{UNITS} units done once, 0 lost, 0 doubled"
    )
    assert found.share >= RECOVERED_SHARE
    assert found.recovery <= RECOVERY_SECONDS


def test_the_server_is_restarted(fleet: Fleet) -> None:
    with fault(fleet, "server restart"):
        fleet.server.stop("immediate")
        fleet.pass_time(3.0)
        fleet.server.start()


def test_the_server_hangs(fleet: Fleet) -> None:
    with fault(fleet, "server hangs"), fleet.server.frozen():
        fleet.pass_time(SHARED_LEASE_SECONDS + 2.0)  # so the lead has run out


def test_all_connections_are_ended_again_and_again(fleet: Fleet) -> None:
    with fault(fleet, "backend termination"):
        for _ in range(25):
            end_connections(fleet.server.url)
            fleet.pass_time(0.2)


def test_other_clients_take_all_connections(fleet: Fleet) -> None:
    def take_all() -> None:
        with contextlib.suppress(psycopg.OperationalError):
            while True:
                others.enter_context(psycopg.connect(fleet.server.url, autocommit=True))

    with fault(fleet, "pool exhaustion"), contextlib.ExitStack() as others:
        admin = others.enter_context(psycopg.connect(fleet.server.url, autocommit=True))
        for _ in range(12):  # whatever the engine gets hold of in between is taken from it again
            take_all()
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'paceline'")
            take_all()
            fleet.pass_time(0.5)


def test_the_engine_crashes(fleet: Fleet) -> None:
    with fault(fleet, "engine crash"):
        fleet.crash()


def test_the_server_and_the_engine_are_killed_in_turn(fleet: Fleet) -> None:
    with fault(fleet, "repeated kills"):
        for _ in range(3):
            fleet.crash()
            fleet.pass_time(0.5)
            fleet.server.restart("immediate")
            fleet.pass_time(0.5)
            end_connections(fleet.server.url)
            fleet.pass_time(0.5)
