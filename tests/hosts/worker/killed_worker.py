"""A worker that is killed: it starts one session under a lease, and dies by SIGKILL once the session runs.

python killed_worker.py HOME LEASE
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.hosts.worker.leader import ScriptedLeader

from paceline.agents import Task, load_agent
from paceline.clock import SystemClock
from paceline.executors.process import ProcessExecutor
from paceline.hosts.messages import SessionOrder
from paceline.hosts.worker.sessions import HostContext
from paceline.hosts.worker.worker import Worker
from paceline.leadership.host_lease import HostLease
from paceline.testing import DirectLink


async def main(home: Path, seconds: float) -> None:
    clock = SystemClock()
    leader = ScriptedLeader(clock, host_lease=seconds)
    lease = HostLease(home)
    executor = ProcessExecutor(str(home / "spool"), lease_file=str(lease.file))
    context = HostContext(identity="w1", environ={"PATH": os.environ["PATH"]})
    worker = Worker(DirectLink(leader, clock), executor, home, context, clock=clock, lease=lease)
    running = asyncio.create_task(worker.run())
    await leader.joined()
    task = Task(unit_id="night/u0", attempt_id="a1", prompt="", cwd=str(home), command=("sleep", "1000"))
    await leader.give(SessionOrder(profile=load_agent("command"), task=task))
    await leader.until(lambda: any(each.state and each.state.pid for each in leader.of_session("a1")))
    os.kill(os.getpid(), signal.SIGKILL)
    await running


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2])))
