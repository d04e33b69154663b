"""A worker that is killed: it starts one session under a lease, and dies by SIGKILL once the session runs.

python killed_worker.py HOME LEASE
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.worker.leader import ScriptedLeader

from paceline.agents import Task, load_agent
from paceline.clock import SystemClock
from paceline.executors.terminal import TerminalExecutor
from paceline.hosts.messages import Start
from paceline.hosts.session_order import SessionOrder
from paceline.testing import DirectLink
from paceline.worker.host_lease import HostLease
from paceline.worker.host_sessions import SessionPlace
from paceline.worker.worker import Worker, WorkerOptions


async def main(home: Path, seconds: float) -> None:
    clock = SystemClock()
    leader = ScriptedLeader(clock, host_lease=seconds)
    lease = HostLease(home)
    executor = TerminalExecutor(str(home / "spool"), lease_file=str(lease.file))
    place = SessionPlace(environ={"PATH": os.environ["PATH"]})
    options = WorkerOptions(identity="w1")
    worker = Worker(DirectLink(leader, clock), executor, home, place, clock=clock, options=options, lease=lease)
    running = asyncio.create_task(worker.run())
    await leader.joined()
    task = Task(unit_id="night/u0", attempt_id="a1", prompt="", cwd=str(home), command=("sleep", "1000"))
    await leader.give(Start(session=SessionOrder(profile=load_agent("command"), task=task)))
    await leader.until(lambda: any(each.state and each.state.pid for each in leader.of_session("a1")))
    os.kill(os.getpid(), signal.SIGKILL)
    await running


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2])))
