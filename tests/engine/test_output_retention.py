"""How fast output is removed that is beyond the limits."""

import os
from pathlib import Path

from paceline.engine.retention import OutputRetention
from paceline.executors.interface import OutputLimits
from paceline.executors.process import ProcessExecutor
from paceline.executors.spool import STEP_ATTEMPTS, Spool
from paceline.executors.spool_writer import write_status
from paceline.store import SqliteStore

NOW = 1_800_000_000.0
DAY = 86400.0


def archived(spool: Spool, name: str, *, age: float) -> None:
    """An ended attempt of a unit that is not stored any more."""
    folder = spool.create(name)
    write_status({"phase": "ended", "boot_id": "b", "started_at": NOW, "unit": "gone/u"}, folder=folder, sync=False)
    spool.archive(name)
    os.utime(os.path.join(spool.root, ".settled", name), (NOW - age, NOW - age))


def test_while_much_is_too_old_every_pass_removes_some(tmp_path: Path) -> None:
    executor = ProcessExecutor(str(tmp_path / "home" / "spool"))
    for number in range(3 * STEP_ATTEMPTS):
        archived(executor.spool, f"a{number}", age=2 * DAY)
    retention = OutputRetention(SqliteStore.in_memory(), executor, OutputLimits(max_age=DAY))

    left = []
    for _ in range(3):
        retention.step(NOW)
        left.append(len(list(executor.spool.archived())))
    executor.close()

    assert left == [2 * STEP_ATTEMPTS, STEP_ATTEMPTS, 0]


def test_while_little_is_too_old_a_step_is_made_once_in_a_second(tmp_path: Path) -> None:
    executor = ProcessExecutor(str(tmp_path / "home" / "spool"))
    for number in range(2 * STEP_ATTEMPTS):
        archived(executor.spool, f"a{number}", age=2 * DAY if number % 8 == 0 else 0.0)
    retention = OutputRetention(SqliteStore.in_memory(), executor, OutputLimits(max_age=DAY))

    left = []
    for now in (NOW, NOW, NOW + 1.0):
        retention.step(now)
        left.append(len(list(executor.spool.archived())))
    executor.close()

    assert left[0] == left[1] > left[2] == 2 * STEP_ATTEMPTS - 2 * STEP_ATTEMPTS // 8


def test_an_archive_stays_bounded_however_many_units_end_in_each_pass(tmp_path: Path) -> None:
    executor = ProcessExecutor(str(tmp_path / "home" / "spool"))
    kept_passes, per_pass = 8, STEP_ATTEMPTS
    retention = OutputRetention(SqliteStore.in_memory(), executor, OutputLimits(max_age=float(kept_passes)))

    most = 0
    for now in range(6 * kept_passes):
        for number in range(per_pass):
            folder = executor.spool.create(f"a{now}-{number}")
            write_status(
                {"phase": "ended", "boot_id": "b", "started_at": NOW, "unit": "gone/u"}, folder=folder, sync=False
            )
            handle = executor.adopt(f"a{now}-{number}")
            assert handle is not None
            executor.archive(handle)
            os.utime(os.path.join(executor.spool.root, ".settled", f"a{now}-{number}"), (NOW + now, NOW + now))
        while retention.step(NOW + now):
            pass
        most = max(most, len(list(executor.spool.archived())))
    executor.close()

    assert most <= 2 * kept_passes * per_pass
