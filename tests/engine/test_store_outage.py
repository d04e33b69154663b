"""A store that does not answer for a while: nothing starts, nothing is lost, and it is told once."""

import errno
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.engine.log_capture import Logged
from tests.executors.small_disk import SmallDisk, small_disk

from paceline.clock import SystemClock
from paceline.engine.store_outage import NOTE_FILE, StoreOutage, read_outage, store_trouble
from paceline.errors import OUTAGES, StoreError, StoreFull, StoreUnreachable
from paceline.simulation.executor import Run
from paceline.store import SqliteStore
from paceline.testing.engine_harness import EngineHarness

MEGABYTE = 1 << 20


class Unreachable(SqliteStore):
    """A store that can be switched off."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.is_away = False
        self.leaves_when: Callable[[], bool] | None = None
        self.asked = 0
        self.error: type[StoreError] = StoreUnreachable

    def __getattribute__(self, name: str) -> object:
        found = super().__getattribute__(name)
        if name.startswith(("_", "leaves_when", "error")) or not callable(found):
            return found
        if self.leaves_when is not None and self.leaves_when():
            self.is_away = True
        if not self.is_away:
            return found

        def fail(*_: object, **__: object) -> object:
            self.asked += 1
            raise self.error(f"it does not answer ({self.asked})")

        return fail


@pytest.fixture
def logged() -> Iterator[list[str]]:
    handler = Logged()
    logging.getLogger("paceline.engine").addHandler(handler)
    yield handler.lines
    logging.getLogger("paceline.engine").removeHandler(handler)


async def test_an_outage_is_logged_once_and_noted_for_commands(tmp_path: Path, logged: list[str]) -> None:
    store = Unreachable()
    async with EngineHarness(store=store, pool=1) as harness:
        harness.engine.outage.note_in(tmp_path)
        harness.add("night", 3)
        await harness.run(30.0)
        store.is_away = True
        began = harness.clock.now()
        await harness.run(600.0)

        note = read_outage(tmp_path)
        store.is_away = False
        await harness.run(300.0)

        assert note is not None
        assert (note.reason, 0.0 <= note.since - began <= 60.0) == ("it does not answer (1)", True)
        assert read_outage(tmp_path) is None
        assert [line.partition(":")[0].partition(", after")[0] for line in logged] == [
            "the store cannot be used, so nothing starts; running sessions continue",
            "the store can be used again",
        ]
        assert harness.states() == {"night/u0": "done", "night/u1": "done", "night/u2": "done"}
        assert harness.failures() == 0


async def test_an_outage_costs_one_pass_per_heartbeat_also_while_output_waits() -> None:
    store = Unreachable()
    async with EngineHarness(
        lambda _: Run(stdout="building\n" * (2 * MEGABYTE), seconds=3600.0), store=store, pool=1, heartbeat=1.0
    ) as harness:
        harness.add("night", 1)
        await harness.run(0.0)
        store.leaves_when = lambda: harness.engine.monitor.is_behind
        await harness.run(100.0)
        asked, store.is_away = store.asked, False

        assert 50 <= asked <= 150


async def test_an_engine_that_is_stopped_in_an_outage_ends_well(tmp_path: Path, logged: list[str]) -> None:
    store = Unreachable()
    harness = EngineHarness(store=store, pool=1)
    harness.engine.outage.note_in(tmp_path)
    harness.add("night", 2)
    await harness.run(30.0)
    store.is_away = True
    await harness.run(30.0)

    await harness.stop()

    assert logged[-1].startswith("ended without storing it; the next engine continues from what was stored last: ")
    assert read_outage(tmp_path) is None
    store.is_away = False
    store.resign("engine1")  # as the next engine of the home does
    await harness.run(400.0)
    assert harness.states() == {"night/u0": "done", "night/u1": "done"}
    await harness.stop()


def test_a_note_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    (tmp_path / "outage.json").write_text("{")
    assert read_outage(tmp_path) is None


def test_a_full_and_a_read_only_disk_are_seen_by_everybody_who_can_read_the_home(tmp_path: Path) -> None:
    with small_disk(tmp_path / "home", may_mount=True) as disk:
        if not isinstance(disk, SmallDisk):
            pytest.skip("no file system can be mounted here")
        seen = [store_trouble(tmp_path / "home")]
        disk.fill()
        seen.append(store_trouble(tmp_path / "home"))
        disk.free()
        seen.append(store_trouble(tmp_path / "home"))
        disk.set_read_only()
        seen.append(store_trouble(tmp_path / "home"))

    full = f"the disk of {tmp_path}/home is full: 0 kB are left, too little for a session; free some space"
    assert seen == [None, full, None, f"{tmp_path}/home cannot be changed: Read-only file system; make it writable"]


def test_a_disk_that_refuses_changes_and_is_listed_as_writable_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(os, "utime", refuse)

    assert store_trouble(tmp_path) == f"{tmp_path} cannot be changed: Read-only file system; make it writable"


@pytest.mark.parametrize(
    ("user", "free", "of_users", "is_full"),
    [
        (0, 4096, 0, True),
        (0, 4096 + 300, 0, False),
        (1000, 4096 + 300, 0, True),
        (1000, 4096 + 300, 300, False),
    ],
)
def test_blocks_that_the_file_system_gives_to_nobody_are_not_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, free: int, of_users: int, is_full: bool
) -> None:
    disk = os.statvfs_result((4096, 4096, 1_000_000, free, of_users, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: disk)
    monkeypatch.setattr(os, "geteuid", lambda: user)

    assert (store_trouble(tmp_path) is not None) is is_full


def test_what_an_engine_met_is_noted_on_a_full_disk_too(tmp_path: Path) -> None:
    with small_disk(tmp_path / "home", may_mount=True) as disk:
        if not isinstance(disk, SmallDisk):
            pytest.skip("no file system can be mounted here")
        outage = StoreOutage(SystemClock())
        outage.note_in(tmp_path / "home")
        disk.fill()
        outage.begin(StoreFull("no disk space left"))
        disk_full = store_trouble(tmp_path / "home")
        disk.free()
        outage.end()

        assert (disk_full, store_trouble(tmp_path / "home")) == ("no disk space left", None)
        outage.forget_note()
        assert not (tmp_path / "home" / NOTE_FILE).exists()


async def test_a_disk_that_is_full_for_a_while_charges_nobody(logged: list[str]) -> None:
    store = Unreachable()
    store.error = StoreFull
    async with EngineHarness(store=store, pool=1) as harness:
        harness.add("night", 2)
        await harness.run(30.0)
        store.is_away = True
        await harness.run(600.0)
        store.is_away = False
        await harness.run(300.0)

        assert (harness.states(), harness.failures()) == ({"night/u0": "done", "night/u1": "done"}, 0)
        assert (StoreFull in OUTAGES, len(logged)) == (True, 2)
