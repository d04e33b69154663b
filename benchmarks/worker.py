"""The cost of a worker: the share of a core that it uses with many idle sessions.

    python -m benchmarks.worker [--sessions 200] [--seconds 30]

It starts a worker over real supervisors with `sleep` sessions, and a leader in the same process that answers without a
network. The CPU time is that of this process (`getrusage`), and beside it that of all supervisors together (`/proc`),
each as a share of one core.
"""

import argparse
import asyncio
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from paceline.agents import Task, load_agent
from paceline.clock import SystemClock
from paceline.executors.proc_table import stat_fields
from paceline.executors.process import ProcessExecutor
from paceline.executors.spool import read_session_status
from paceline.hosts.messages import (
    Joined,
    JoinRequest,
    Orders,
    OrdersRequest,
    Reports,
    ReportsTaken,
    SessionOrder,
    SessionReport,
)
from paceline.hosts.worker.sessions import HostContext
from paceline.hosts.worker.worker import Worker
from paceline.leadership.host_lease import HostLease
from paceline.testing import DirectLink

SETTLE_SECONDS = 10.0
"""The wait after the last start: supervisors start, and the versions of programs are read once."""
TICKS = os.sysconf("SC_CLK_TCK")


class IdleLeader:
    """Orders all sessions at once, then only answers."""

    def __init__(self, orders: list[SessionOrder]) -> None:
        self._orders = tuple(enumerate(orders, 1))
        self.all_run = asyncio.Event()
        self._running: set[str] = set()

    async def join(self, request: JoinRequest) -> Joined:
        return Joined(joining="j1", leader="benchmark", host_lease=600.0, now=time.time())

    async def orders(self, request: OrdersRequest) -> Orders:
        left = tuple((number, order) for number, order in self._orders if number > request.after)
        if not left:
            await asyncio.sleep(request.wait)
        return Orders(now=time.time(), orders=left[:64])

    async def report(self, reports: Reports) -> ReportsTaken:
        msgspec.json.encode(reports)  # the worker pays for that over HTTP
        for _, report in reports.reports:
            if isinstance(report, SessionReport) and report.state is not None:
                self._running.add(report.attempt_id)
        if len(self._running) == len(self._orders):
            self.all_run.set()
        return ReportsTaken(now=time.time(), through=reports.reports[-1][0] if reports.reports else 0)


def cpu_of(pids: list[int]) -> float:
    """Return the CPU seconds that the processes have used."""
    return sum(sum(int(ticks) for ticks in stat_fields(pid)[11:13]) for pid in pids) / TICKS


def own_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measure(home: Path, sessions: int, seconds: float) -> None:
    orders = [
        SessionOrder(
            profile=load_agent("command"),
            task=Task(unit_id="b/u", attempt_id=f"a{number}", prompt="", cwd=str(home), command=("sleep", "100000")),
        )
        for number in range(sessions)
    ]
    clock, lease, leader = SystemClock(), HostLease(home), IdleLeader(orders)
    executor = ProcessExecutor(str(home / "spool"), lease_file=str(lease.file))
    context = HostContext(identity="benchmark", environ=dict(os.environ))
    worker = Worker(DirectLink(leader, clock), executor, home, context, clock=clock, lease=lease)
    running = asyncio.create_task(worker.run())
    began = time.monotonic()
    await leader.all_run.wait()
    print(f"{sessions} sessions were started and reported after {time.monotonic() - began:.1f} s")
    await asyncio.sleep(SETTLE_SECONDS)
    folders = [executor.spool.folder(order.attempt_id) or "" for order in orders]
    statuses = [status for folder in folders if (status := read_session_status(folder)) is not None]
    supervisors = [status.supervisor_pid for status in statuses if status.supervisor_pid is not None]
    before, ours_before, begun = cpu_of(supervisors), own_cpu(), time.monotonic()
    await asyncio.sleep(seconds)
    passed = time.monotonic() - begun
    ours, theirs = own_cpu() - ours_before, cpu_of(supervisors) - before
    print(f"worker: {ours / passed:.2%} of a core; {len(supervisors)} supervisors together: {theirs / passed:.2%}")
    for order in orders:
        handle = executor.adopt(order.attempt_id)
        if handle is not None:
            executor.kill(handle)
    worker.leave()
    await running
    executor.close()


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=30.0)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        asyncio.run(measure(Path(folder), given.sessions, given.seconds))


if __name__ == "__main__":
    main(sys.argv[1:])
