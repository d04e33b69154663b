"""Output is kept as long as the settings say: old output goes, the oldest goes first, and what is needed stays."""

import os
from pathlib import Path

import pytest

from paceline.executors.interface import OutputLimits, PruneResult
from paceline.executors.spool import SCAN_SECONDS, STEP_ATTEMPTS, ArchivePruner, Spool

NOW = 1_800_000_000.0
DAY = 86400.0
BLOCK = 4096


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(str(tmp_path / "home" / "spool"))


def archived(spool: Spool, name: str, *, age: float = 0.0, blocks: int = 1, unit: str | None = None) -> None:
    """An ended attempt whose output takes so many blocks."""
    folder = spool.create(name)
    with open(os.path.join(folder, "stdout"), "wb") as file:
        file.write(b"x" * BLOCK * blocks)
    spool.archive(name)
    path = os.path.join(spool.root, ".settled", name)
    os.utime(path, (NOW - age, NOW - age))


def names(spool: Spool) -> list[str]:
    return sorted(spool.archived())


def needs_nothing(_attempt: str, _unit: str | None) -> bool:
    return False


def test_old_output_is_removed_and_younger_output_stays(spool: Spool) -> None:
    archived(spool, "old", age=15 * DAY)
    archived(spool, "young", age=13 * DAY)

    removed = ArchivePruner(spool).prune_all(OutputLimits(max_age=14 * DAY), needs_nothing, NOW)

    assert (removed, names(spool)) == (PruneResult(1, BLOCK), ["young"])


def test_the_oldest_output_goes_first_until_there_is_room(spool: Spool) -> None:
    for day in range(10):
        archived(spool, f"a{day}", age=day * DAY)

    removed = ArchivePruner(spool).prune_all(OutputLimits(max_bytes=5 * BLOCK), needs_nothing, NOW)

    assert names(spool) == ["a0", "a1", "a2", "a3"]  # a tenth below the limit, so that it is not reached at once
    assert removed == PruneResult(6, 6 * BLOCK)


def test_within_the_limits_nothing_is_removed(spool: Spool) -> None:
    archived(spool, "a", age=DAY)

    assert ArchivePruner(spool).prune_all(OutputLimits(max_age=2 * DAY, max_bytes=BLOCK), needs_nothing, NOW) == (
        PruneResult()
    )
    assert ArchivePruner(spool).prune_all(OutputLimits(), needs_nothing, NOW) == PruneResult()
    assert names(spool) == ["a"]


def test_the_database_counts_for_the_size_of_the_home(spool: Spool, tmp_path: Path) -> None:
    archived(spool, "a", age=DAY)
    (tmp_path / "home" / "paceline.db").write_bytes(b"x" * 10 * BLOCK)

    ArchivePruner(spool).prune_all(OutputLimits(max_bytes=5 * BLOCK), needs_nothing, NOW)

    assert names(spool) == []


def test_output_that_is_needed_stays_however_old_and_large_it_is(spool: Spool) -> None:
    archived(spool, "parked", age=100 * DAY, blocks=9)
    archived(spool, "done", age=90 * DAY)
    limits = OutputLimits(max_age=DAY, max_bytes=BLOCK)

    ArchivePruner(spool).prune_all(limits, lambda attempt, _unit: attempt == "parked", NOW)

    assert names(spool) == ["parked"]


def test_a_dry_run_counts_what_would_go_once_and_removes_nothing(spool: Spool) -> None:
    archived(spool, "old", age=15 * DAY)
    for day in range(4):
        archived(spool, f"a{day}", age=day * DAY)
    limits = OutputLimits(max_age=14 * DAY, max_bytes=3 * BLOCK)

    found = ArchivePruner(spool, is_dry_run=True).prune_all(limits, needs_nothing, NOW)

    assert (found, len(names(spool))) == (PruneResult(3, 3 * BLOCK), 5)
    assert ArchivePruner(spool).prune_all(limits, needs_nothing, NOW) == found


def test_one_step_reads_a_bounded_piece_and_a_scan_ends(spool: Spool) -> None:
    for number in range(2 * STEP_ATTEMPTS + 10):
        archived(spool, f"a{number}", age=15 * DAY)
    pruner, limits = ArchivePruner(spool), OutputLimits(max_age=14 * DAY)

    steps = [pruner.prune_step(limits, needs_nothing, NOW + second).attempts for second in range(5)]

    assert steps == [STEP_ATTEMPTS, STEP_ATTEMPTS, 10, 0, 0]


def test_the_next_scan_waits_and_a_clock_that_is_set_back_does_not_stop_it(spool: Spool) -> None:
    pruner, limits = ArchivePruner(spool), OutputLimits(max_age=DAY)
    pruner.prune_step(limits, needs_nothing, NOW)
    archived(spool, "a", age=15 * DAY)

    assert pruner.prune_step(limits, needs_nothing, NOW + SCAN_SECONDS / 2) == PruneResult()
    assert pruner.prune_step(limits, needs_nothing, NOW - 5 * DAY) == PruneResult(1, BLOCK)
