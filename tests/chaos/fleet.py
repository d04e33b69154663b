"""A real `paceline up` with real sessions over a PostgreSQL server of its own, and what becomes of its units.

Sessions last a fixed time, so the pool and not the processor bounds the throughput. Each writes one line when it starts
and one when it ends, so a unit that ran twice is counted whatever the database says.
"""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from tests.cli.shell import Shell
from tests.postgres_server import PostgresServer
from tests.warm_process import WarmProcess

from paceline.store import UnitCounts
from paceline.store.postgres import PostgresStore

POOL = 16
LONG_SESSION_SECONDS = 6.0
"""With 16 sessions at once 2.7 units end per second. Two cores start as many with time to spare, and what a busy
machine adds to a session is a small part of it: the measure is the pool, not the processor."""
SHORT_SESSION_SECONDS = 1.5
WINDOW_UNITS = POOL
"""Sessions that started together end together, so a window is one round of the pool."""
POLL_SECONDS = 0.05
PATIENCE_SECONDS = 90.0
EXIT_SECONDS = 15.0
RECOVERED_SHARE = 0.95
CAMPAIGN = "work"
SCRIPT = 'echo "$PACELINE_UNIT" >> starts; sleep SECONDS; echo "$PACELINE_UNIT" >> ends'


class Throughput(msgspec.Struct, frozen=True):
    """Units per second as the median of windows, before the fault and after it."""

    before: float
    after: float
    recovery: float
    """Seconds from the end of the fault until the first unit was started that ended after it."""

    @property
    def share(self) -> float:
        return self.after / self.before


class Fleet:
    """One campaign of `units` units, and the daemon that runs it."""

    def __init__(self, shell: Shell, server: PostgresServer, *, units: int, session_seconds: float) -> None:
        self.shell = shell
        self._session_seconds = session_seconds
        self.server = server
        self.units = [f"{CAMPAIGN}/u{number}" for number in range(units)]
        shell.env["PACELINE_STORE_URL"] = server.url
        (shell.folder / "paceline.toml").write_text(f"[pool]\nsessions = {POOL}\n")
        self._add(units)
        self.daemon = self._up()

    def _add(self, units: int) -> None:
        script = SCRIPT.replace("SECONDS", str(self._session_seconds))
        lines = [f'[campaign]\nname = "{CAMPAIGN}"\ncommand = {json.dumps(["sh", "-c", script])}']
        lines += [f'[[unit]]\nid = "u{number}"\nprompt = "x"' for number in range(units)]
        (self.shell.folder / "plan.toml").write_text("\n".join(lines))
        self.shell.run("add", "plan.toml")

    def _up(self) -> WarmProcess:
        return self.shell.up()[0]

    # -- the life of the daemon ----------------------------------------------------------------------

    def crash(self) -> None:
        """Kill the daemon and start another, as systemd does."""
        self.daemon.kill()
        self.daemon.wait()
        self.daemon = self._up()

    def stop(self) -> float:
        """Ask the daemon to stop, and return how long that took."""
        begun = time.monotonic()
        self.daemon.send_signal(signal.SIGTERM)
        _, said = self.daemon.communicate(timeout=4 * EXIT_SECONDS)
        assert (self.daemon.returncode, "Traceback" in said) == (0, False), said + self.log
        return time.monotonic() - begun

    def start(self) -> None:
        self.daemon = self._up()

    def pass_time(self, seconds: float) -> None:
        """Let the daemon work. It must not end by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.daemon.wait(seconds)
        assert self.daemon.poll() is None, self.log

    def until(self, is_so: Callable[[], bool]) -> None:
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            assert time.monotonic() < give_up_at, self.log
            self.pass_time(POLL_SECONDS)

    def work(self, units: int) -> None:
        """Let so many more units end."""
        wanted = len(self.ended) + units
        self.until(lambda: len(self.ended) >= wanted)

    def finish(self) -> None:
        """Let all units end, and be stored as done."""
        self.until(lambda: len(self.ended) >= len(self.units))
        with self.store() as store:
            self.until(lambda: store.counts()[CAMPAIGN].done == len(self.units))

    # -- what became of the units --------------------------------------------------------------------

    @property
    def started(self) -> list[str]:
        return _lines(self.shell.folder / "starts")

    @property
    def ended(self) -> list[str]:
        return _lines(self.shell.folder / "ends")

    @property
    def log(self) -> str:
        path = self.shell.home / "paceline.log"
        return path.read_text() if path.exists() else ""

    @contextlib.contextmanager
    def store(self) -> Iterator[PostgresStore]:
        with contextlib.closing(PostgresStore(self.server.url)) as store:
            yield store

    def done_times(self) -> dict[str, list[float]]:
        """When each unit was recorded as done: exactly one time for each, if all is well."""
        with self.store() as store:
            times: dict[str, list[float]] = {}
            after = 0
            while page := store.events(after=after, limit=10_000):
                after = page[-1].id
                for each in page:
                    if each.event.name == "unit.done":
                        times.setdefault(str(each.event.unit), []).append(each.event.at)
            return times

    def check_all_done_once(self) -> None:
        """0 units lost or doubled: by their own lines, by the events and by the counts."""
        once = Counter(self.units)
        assert Counter(self.started) == once
        assert Counter(self.ended) == once
        assert {unit: len(times) for unit, times in self.done_times().items()} == dict(once)
        with self.store() as store:
            assert store.counts()[CAMPAIGN] == UnitCounts(done=len(self.units))

    def throughput(self, fault_at: float, over_at: float) -> Throughput:
        """Compare the windows before the fault with those after it, as long as the pool could be full."""
        ends = sorted(times[0] for times in self.done_times().values())
        last = ends[-POOL]
        first_after = next(end for end in ends if end > over_at + self._session_seconds)
        return Throughput(
            before=_median_rate(ends, ends[0], fault_at),
            after=_median_rate(ends, first_after, last),
            recovery=first_after - over_at - self._session_seconds,
        )


def _median_rate(ends: list[float], begin: float, end: float) -> float:
    """Return the median over windows of a fixed number of units, so that whole numbers do not decide."""
    measured = [each for each in ends if begin <= each <= end]
    windows = [later - each for each, later in zip(measured, measured[WINDOW_UNITS:], strict=False)]
    assert len(windows) >= WINDOW_UNITS, f"only {len(measured)} units were measured"
    return WINDOW_UNITS / statistics.median(windows)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@contextlib.contextmanager
def fleet_in(
    shell: Shell, server: PostgresServer, *, units: int, session_seconds: float = SHORT_SESSION_SECONDS
) -> Iterator[Fleet]:
    """Run a fleet, and end its sessions afterwards."""
    fleet = Fleet(shell, server, units=units, session_seconds=session_seconds)
    try:
        yield fleet
    finally:
        fleet.daemon.kill()
        for status in shell.home.glob("spool/*/status.json"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(json.loads(status.read_text())["supervisor_pid"], signal.SIGTERM)
