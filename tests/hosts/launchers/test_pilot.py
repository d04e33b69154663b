"""A pilot runs one worker by the order in its home, also without Slurm around it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.fleet import until

from paceline.hosts.launchers.interface import write_private
from paceline.hosts.launchers.slurm import ORDER_FILE, PilotOrder, read_state, seconds_left
from paceline.testing.launcher_contract import LaunchSite, StandIn, is_running, stand_in_start


@pytest.fixture
def site(tmp_path: Path) -> Iterator[LaunchSite]:
    made = LaunchSite(launcher=lambda: pytest.fail("no launcher"), worker=stand_in_start("box1", tmp_path))
    yield made
    for each in made.stand_ins():
        for pid in (each.pid, each.session):
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def pilot(tmp_path: Path) -> "Iterator[subprocess.Popen[bytes]]":
    process = subprocess.Popen(
        [sys.executable, "-m", "paceline.hosts.launchers.slurm", str(tmp_path)],
        env={**os.environ, "SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": "2000000000"},
        stdout=subprocess.DEVNULL,
    )
    yield process
    process.kill()
    process.wait()


def give(site: LaunchSite, order_id: str, *, is_wanted: bool = True) -> None:
    order = PilotOrder(order_id=order_id, worker=site.worker, is_wanted=is_wanted)
    write_private(Path(site.worker.home) / ORDER_FILE, msgspec.json.encode(order).decode())


def started(site: LaunchSite, count: int) -> StandIn:
    until(lambda: len(site.stand_ins()) == count and len(site.workers()) == 1)
    return site.workers()[0]


def test_a_new_order_replaces_the_worker_and_no_session(
    site: LaunchSite, pilot: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    give(site, "first")
    first = started(site, 1)

    give(site, "second")

    second = started(site, 2)
    assert is_running(first.session)
    until(lambda: (state := read_state(tmp_path)) is not None and (state.order_id, state.pid) == ("second", second.pid))


def test_a_pilot_says_that_its_worker_died_and_starts_it_again_when_it_is_told(
    site: LaunchSite, pilot: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    give(site, "first")
    worker = started(site, 1)

    os.kill(worker.pid, signal.SIGKILL)
    until(lambda: (state := read_state(tmp_path)) is not None and state.pid is None)
    give(site, "again")

    assert started(site, 2).pid != worker.pid


def test_a_pilot_without_a_wanted_worker_ends_with_its_last_session(
    site: LaunchSite, pilot: "subprocess.Popen[bytes]"
) -> None:
    give(site, "first")
    worker = started(site, 1)
    give(site, "stop", is_wanted=False)
    until(lambda: not site.workers())
    assert pilot.poll() is None

    os.kill(worker.session, signal.SIGKILL)

    assert pilot.wait(60) == 0


def test_a_pilot_that_is_warned_ends_its_worker_and_itself(site: LaunchSite, pilot: "subprocess.Popen[bytes]") -> None:
    give(site, "first")
    worker = started(site, 1)

    pilot.send_signal(signal.SIGTERM)

    assert pilot.wait(60) == 0
    assert not is_running(worker.pid)


DIED_UNSEEN = """
import subprocess, sys
from pathlib import Path
from paceline.executors.proc_table import has_ended
from paceline.hosts.launchers.slurm import Pilot
pilot = Pilot(Path(sys.argv[1]), {})
pilot._worker = subprocess.Popen(["true"])
while not has_ended(pilot._worker.pid):
    pass
pilot._end_worker()
assert pilot._worker is None
"""


def test_a_worker_that_died_unseen_does_not_hold_up_the_pilot_that_ends_it(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", DIED_UNSEEN, str(tmp_path)], capture_output=True, timeout=30)

    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0:59", 59), ("10:00", 600), ("8:00:00", 28800), ("1-02:03:04", 93784), ("1-00", 86400)]
    + [(text, None) for text in ("UNLIMITED", "NOT_SET", "INVALID", "", "x-1:00")],
)
def test_the_time_left_is_read_as_slurm_prints_it(text: str, seconds: float | None) -> None:
    assert seconds_left(text) == seconds
