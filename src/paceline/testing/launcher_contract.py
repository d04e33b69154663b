"""The contract of a launcher as a test suite. It needs pytest, so nothing else of the kit imports it.

    class TestMyLauncher(LauncherContract):
        @pytest.fixture
        def site(self, tmp_path: Path) -> Iterator[LaunchSite]:
            site = LaunchSite(launcher=lambda: MyLauncher(...), home=tmp_path / "worker")
            yield site
            site.clear()

The workers are stand-ins (`stand_in_worker.py`), real processes on a machine whose process table and files the tests
can read. `LaunchSite.workers` may be overridden where that is another one.
"""

import contextlib
import multiprocessing
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec
import pytest

from paceline.errors import LaunchFailed
from paceline.executors.proc_table import stat_fields
from paceline.hosts.launchers.interface import WorkerLauncher, WorkerStart
from paceline.testing import stand_in_worker

SECRET: Final = "box1.a-token-that-nobody-else-may-read-0123456789"
WAIT_SECONDS: Final = 60.0
"""How long a test waits for a process. A batch system needs some seconds to start one."""
_POLL_SECONDS: Final = 0.05


class StandIn(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that was started: what it found, and the process of its session."""

    pid: int
    session: int
    name: str
    connect: tuple[str, ...]
    token: str


class LaunchSite:
    """One host with a launcher. `launcher` returns a new one each time, as another process of the leader has.

    `worker` is what the worker is started with. Without it, that is a stand-in for the host `box1` in `home`.
    `troubles` are launchers of hosts that cannot work, each with words that its error must have.
    """

    def __init__(
        self,
        *,
        launcher: Callable[[], WorkerLauncher],
        home: Path | None = None,
        worker: WorkerStart | None = None,
        troubles: tuple[tuple[WorkerLauncher, tuple[str, ...]], ...] = (),
        folders: tuple[Path, ...] = (),
    ) -> None:
        self.launcher = launcher
        self.worker = worker or stand_in_start("box1", home or Path.home())
        self.troubles = troubles
        self.folders = (Path(self.worker.home), *folders)
        """Where files of the launcher and of the worker are."""

    def stand_ins(self) -> list[StandIn]:
        """Return every worker that was ever started."""
        notes = sorted((Path(self.worker.home) / stand_in_worker.NOTES_FOLDER).glob("*.json"))
        return [msgspec.json.decode(note.read_bytes(), type=StandIn) for note in notes]

    def workers(self) -> list[StandIn]:
        """Return the workers that run."""
        return [each for each in self.stand_ins() if is_running(each.pid)]

    def clear(self) -> None:
        """End all processes of the tests."""
        with contextlib.suppress(LaunchFailed):
            self.launcher().stop()
        for each in self.stand_ins():
            for pid in (each.pid, each.session):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def stand_in_start(name: str, home: Path) -> WorkerStart:
    """Return what starts a stand-in on a host that has this Python."""
    return WorkerStart(
        name=name,
        connect=("http://127.0.0.1:7433", "http://127.0.0.1:7434"),
        token=SECRET,
        labels=("gpu",),
        home=str(home),
        program=(sys.executable, stand_in_worker.__file__),  # by its path: the package around it is slow to import
    )


class LauncherContract:
    """The suite. Inherit from it, and add a fixture `site`."""

    def test_a_worker_gets_its_name_its_addresses_and_its_token(self, site: LaunchSite) -> None:
        site.launcher().start(site.worker)

        (worker,) = _started(site, 1)
        assert (worker.name, worker.connect, worker.token) == (site.worker.name, site.worker.connect, SECRET)
        assert site.launcher().is_alive() in (True, None)

    def test_before_the_first_start_nothing_is_alive_and_nothing_need_be_stopped(self, site: LaunchSite) -> None:
        assert site.launcher().is_alive() in (False, None)

        site.launcher().stop()

        assert site.stand_ins() == []

    def test_starting_twice_starts_one_worker(self, site: LaunchSite) -> None:
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(lambda _: site.launcher().start(site.worker), range(2)))
        _started(site, 1)

        site.launcher().start(site.worker)

        assert len(site.stand_ins()) == 1

    def test_a_start_with_another_address_replaces_the_worker_and_no_session(self, site: LaunchSite) -> None:
        site.launcher().start(site.worker)
        (old,) = _started(site, 1)

        site.launcher().start(msgspec.structs.replace(site.worker, connect=("http://127.0.0.1:9000",)))

        until(lambda: len(site.stand_ins()) == 2 and len(site.workers()) == 1)
        assert site.workers()[0].connect == ("http://127.0.0.1:9000",)
        assert is_running(old.session)

    def test_a_worker_outlives_the_process_of_its_launcher(self, site: LaunchSite) -> None:
        process = multiprocessing.get_context("fork").Process(target=_start_and_wait, args=(site,))
        process.start()
        (worker,) = _started(site, 1)

        process.kill()
        process.join()

        assert is_running(worker.pid)
        assert site.launcher().is_alive() in (True, None)

    def test_a_killed_worker_is_not_alive_and_is_started_again(self, site: LaunchSite) -> None:
        site.launcher().start(site.worker)
        (killed,) = _started(site, 1)

        os.kill(killed.pid, signal.SIGKILL)
        until(lambda: site.launcher().is_alive() is not True)

        site.launcher().start(site.worker)
        until(lambda: [each.pid for each in site.workers()] not in ([], [killed.pid]))
        assert len(site.workers()) == 1

    def test_a_stop_ends_the_worker_and_leaves_its_sessions(self, site: LaunchSite) -> None:
        site.launcher().start(site.worker)
        (worker,) = _started(site, 1)

        site.launcher().stop()
        site.launcher().stop()

        until(lambda: not is_running(worker.pid))
        assert site.launcher().is_alive() in (False, None)
        assert is_running(worker.session)

    def test_the_token_is_on_no_command_line_and_in_no_file_of_others(self, site: LaunchSite) -> None:
        with _watched_command_lines() as seen:
            site.launcher().start(site.worker)
            _started(site, 1)
            site.launcher().is_alive()

        assert [line for line in seen if SECRET in line] == []
        assert [str(path) for folder in site.folders for path in _files_with_token(folder) if _is_open(path)] == []

    def test_what_goes_wrong_is_named_with_the_host_and_the_fix(self, site: LaunchSite) -> None:
        for launcher, words in site.troubles:
            with pytest.raises(LaunchFailed) as failed:
                launcher.start(site.worker)
            assert [word for word in (f"host {site.worker.name}", *words) if word not in str(failed.value)] == [], str(
                failed.value
            )
            assert SECRET not in str(failed.value)
        assert site.stand_ins() == []

    def test_it_says_how_the_worker_is_started(self, site: LaunchSite) -> None:
        assert 0 < len(site.launcher().describe()) < 100


def until(is_so: Callable[[], bool]) -> None:
    """Wait for something that other processes do."""
    give_up_at = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < give_up_at, "it did not happen in time"
        time.sleep(_POLL_SECONDS)


def is_running(pid: int) -> bool:
    """Return whether the process is there. A dead one that nobody has reaped is not."""
    fields = stat_fields(pid)
    return bool(fields) and fields[0] not in (b"Z", b"X")


def _started(site: LaunchSite, count: int) -> list[StandIn]:
    until(lambda: len(site.workers()) >= count)
    found = site.workers()
    assert len(found) == count
    return found


def _start_and_wait(site: LaunchSite) -> None:
    site.launcher().start(site.worker)
    signal.pause()


@contextlib.contextmanager
def _watched_command_lines() -> Iterator[set[str]]:
    """Yield every command line of the machine that was seen while the block ran."""
    seen: set[str] = set()
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.002):
            for entry in os.listdir("/proc"):
                if entry.isdigit():
                    with contextlib.suppress(OSError):
                        seen.add(Path("/proc", entry, "cmdline").read_bytes().decode(errors="replace"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        is_over.set()
        watcher.join()


def _files_with_token(folder: Path) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if SECRET.encode() in path.read_bytes()]


def _is_open(path: Path) -> bool:
    """Return whether other users can read the file: by its own mode, and by those of its folders."""
    closed = [each for each in (path, *path.parents) if not stat.S_IMODE(each.stat().st_mode) & 0o077]
    return path not in closed and not closed
