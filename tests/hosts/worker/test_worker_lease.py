"""The lease of a host with real supervisors: without a leader its sessions end, with one they do not."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.executors.conftest import until
from tests.hosts.worker.conftest import WorkerHost
from tests.hosts.worker.leader import ScriptedLeader

from paceline.executors.process import ProcessExecutor
from paceline.executors.supervisor import LEASE_OVER
from paceline.leadership.host_lease import HostLease


async def test_sessions_end_when_no_leader_answers_within_the_lease(host: WorkerHost) -> None:
    host.leader = host.link.leader = ScriptedLeader(host.clock, host_lease=1.0)
    async with host.worker():
        await host.leader.joined()
        await host.leader.give(host.start("a1", "sleep 1000"))
        await host.leader.until(lambda: host.leader.of_session("a1"))
        host.link.cut()
        until_gone = HostLease(host.home)
        while not until_gone.is_over or host.processes():
            await host.clock.sleep(0.05)
        host.link.restore()
        report = await host.leader.end_of("a1")

    assert report.state is not None
    assert report.state.cause in ("stopped", "terminated")
    assert report.state.message == LEASE_OVER


async def test_sessions_outlive_many_short_leases_while_a_leader_answers(host: WorkerHost) -> None:
    host.leader = host.link.leader = ScriptedLeader(host.clock, host_lease=4.0)
    gate = host.gate("gate")
    async with host.worker():
        await host.leader.joined()
        await host.leader.give(host.start("a1", "read line < gate; exit 7"))
        begun = HostLease(host.home).until
        while HostLease(host.home).until < begun + 5.0:
            await host.clock.sleep(0.05)
        gate.write_line()
        report = await host.leader.end_of("a1")

    assert report.state is not None
    assert report.state.exit_code == 7


def test_sessions_end_with_their_lease_when_their_worker_was_killed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    worker = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "killed_worker.py"), str(home), "3"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        check=False,
        timeout=60,
    )
    executor = ProcessExecutor(str(home / "spool"))
    handle = executor.adopt("a1")
    assert handle is not None
    until(lambda: handle.state().is_over)
    executor.close()

    assert worker.returncode == -signal.SIGKILL
    assert (handle.state().cause, handle.state().message) == ("terminated", LEASE_OVER)
    assert HostLease(home).is_over
