"""The lease of a host, in memory and in its file."""

import math
from pathlib import Path

from paceline.executors.proc_table import boot_id
from paceline.leadership.host_lease import HostLease


def test_a_host_that_never_had_a_leader_has_no_lease(tmp_path: Path) -> None:
    lease = HostLease(tmp_path, elapsed=lambda: 100.0)

    assert (lease.is_over, lease.left, lease.until) == (True, 0.0, -math.inf)


def test_an_answer_extends_the_lease_from_when_its_request_was_sent(tmp_path: Path) -> None:
    lease = HostLease(tmp_path, elapsed=lambda: 130.0)
    lease.renew(100.0, 60.0)

    assert (lease.is_over, lease.left) == (False, 30.0)


def test_the_next_worker_of_the_home_finds_the_lease(tmp_path: Path) -> None:
    HostLease(tmp_path, elapsed=lambda: 100.0).renew(100.0, 60.0)

    assert HostLease(tmp_path, elapsed=lambda: 110.0).left == 50.0


def test_a_lease_of_before_a_restart_of_the_machine_is_over(tmp_path: Path) -> None:
    HostLease(tmp_path, elapsed=lambda: 100.0).renew(100.0, 60.0)
    file = tmp_path / "host_lease"
    file.write_text(file.read_text().replace(boot_id(), "another-boot"))

    assert HostLease(tmp_path, elapsed=lambda: 110.0).is_over


def test_a_leader_can_shorten_the_lease(tmp_path: Path) -> None:
    lease = HostLease(tmp_path, elapsed=lambda: 100.0)
    lease.renew(100.0, 600.0)
    lease.renew(101.0, 30.0)

    assert HostLease(tmp_path, elapsed=lambda: 101.0).left == 30.0


def test_the_file_is_not_written_for_every_answer(tmp_path: Path) -> None:
    lease = HostLease(tmp_path, elapsed=lambda: 100.0)
    lease.renew(100.0, 600.0)
    before = (tmp_path / "host_lease").read_text()
    lease.renew(109.0, 600.0)
    between = (tmp_path / "host_lease").read_text()
    lease.renew(110.0, 600.0)

    assert between == before
    assert (tmp_path / "host_lease").read_text().startswith("710.000\n")


def test_a_home_that_takes_no_new_file_still_gets_the_lease(tmp_path: Path) -> None:
    lease = HostLease(tmp_path, elapsed=lambda: 100.0)
    lease.renew(100.0, 60.0)
    (tmp_path / "host_lease.tmp").mkdir()  # so that no fresh file can be written
    lease.renew(150.0, 60.0)

    assert HostLease(tmp_path, elapsed=lambda: 150.0).left == 60.0


def test_an_answer_to_an_earlier_request_does_not_shorten_the_lease(tmp_path: Path) -> None:
    lease = HostLease(tmp_path, elapsed=lambda: 100.0)
    lease.renew(100.0, 60.0)
    lease.renew(85.0, 60.0)  # a request that was held open for a while
    assert lease.until == 160.0
