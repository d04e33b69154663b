"""The host's own side of a launch, as a launcher calls it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.executors.conftest import until

from paceline.errors import LaunchFailed
from paceline.executors.proc_table import has_ended
from paceline.hosts.launchers.detached_worker import MARK, RECORD_FILE, detached_pid, start_detached, stop_detached
from paceline.hosts.launchers.interface import WorkerLauncher, WorkerStart
from paceline.testing.launcher_contract import LauncherContract, LaunchSite, stand_in_start


class HereLauncher:
    """Starts the worker on this machine."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def start(self, worker: WorkerStart) -> None:
        start_detached(worker, os.environ)

    def is_alive(self) -> bool | None:
        return detached_pid(self._home) is not None

    def stop(self) -> None:
        stop_detached(self._home)

    def describe(self) -> str:
        return "here"


class TestDetachedWorker(LauncherContract):
    @pytest.fixture
    def site(self, tmp_path: Path) -> Iterator[LaunchSite]:
        def launcher() -> WorkerLauncher:
            return HereLauncher(tmp_path / "worker")

        site = LaunchSite(launcher=launcher, home=tmp_path / "worker")
        yield site
        site.clear()


def test_a_worker_that_ends_at_once_is_reported_with_its_last_words(tmp_path: Path) -> None:
    worker = msgspec.structs.replace(
        stand_in_start("box1", tmp_path / "worker"), program=("sh", "-c", "echo the token is not valid; exit 2")
    )

    with pytest.raises(LaunchFailed, match="ended at once: the token is not valid"):
        start_detached(worker, os.environ)

    assert detached_pid(tmp_path / "worker") is None


def test_a_program_that_is_missing_is_named(tmp_path: Path) -> None:
    worker = msgspec.structs.replace(stand_in_start("box1", tmp_path / "worker"), program=("/no/such/python",))

    with pytest.raises(LaunchFailed, match=r"/no/such/python cannot be run: .*No such file"):
        start_detached(worker, os.environ)


def test_no_worker_begins_that_no_later_call_could_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher dies after it has made the process, and before it has written down which one it is."""
    made = []

    def fail(home: Path, pid: int, order: str) -> None:
        made.append(pid)
        raise OSError("the disk is full")

    monkeypatch.setattr("paceline.hosts.launchers.detached_worker._write_record", fail)
    program = ("sh", "-c", f"touch {tmp_path}/began; sleep 600")
    worker = msgspec.structs.replace(stand_in_start("box1", tmp_path / "worker"), program=program)

    with pytest.raises(OSError, match="the disk is full"):
        start_detached(worker, os.environ)

    (pid,) = made
    until(lambda: has_ended(pid))
    assert not (tmp_path / "began").exists()


def test_a_process_with_the_number_of_a_dead_worker_is_not_the_worker(tmp_path: Path) -> None:
    home = tmp_path / "worker"
    answer = start_detached(stand_in_start("box1", home), os.environ)
    assert answer.pid is not None
    record = json.loads((home / RECORD_FILE).read_text())

    for other in ({"start_ticks": 1}, {"boot_id": "another boot"}, {"pid": os.getpid()}):
        (home / RECORD_FILE).write_text(json.dumps(record | other))
        assert detached_pid(home) is None
        stop_detached(home)  # it ends nobody
    (home / RECORD_FILE).write_text(json.dumps(record))
    assert detached_pid(home) == answer.pid

    stop_detached(home)
    assert detached_pid(home) is None


def test_the_worker_has_the_environment_of_the_login_and_no_other_paceline(tmp_path: Path) -> None:
    home = tmp_path / "worker"
    worker = msgspec.structs.replace(
        stand_in_start("box1", home), program=("sh", "-c", f"env > {tmp_path}/env; sleep 600")
    )
    environ = {"PATH": os.environ["PATH"], "LANG": "C", "SSH_CONNECTION": "x", "PACELINE_TOKEN": "full"}

    start_detached(worker, environ)
    stop_detached(home)

    found = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines())
    assert {name: found[name] for name in ("LANG", "PACELINE_HOME")} == {"LANG": "C", "PACELINE_HOME": str(home)}
    assert {"SSH_CONNECTION", "PACELINE_TOKEN"} & found.keys() == set()


def test_the_program_reads_its_order_from_a_pipe_and_prints_one_marked_line(tmp_path: Path) -> None:
    def ask(action: str, order: bytes) -> dict[str, object]:
        program = [sys.executable, "-m", "paceline.hosts.launchers.detached_worker", action]
        run = subprocess.run(program, input=order, capture_output=True, timeout=60)
        assert run.stdout.decode().startswith(MARK)
        answer: dict[str, object] = json.loads(run.stdout.decode().removeprefix(MARK))
        assert (run.returncode, run.stderr) == (1 if "error" in answer else 0, b"")
        return answer

    order = msgspec.json.encode(stand_in_start("box1", tmp_path / "worker"))
    started = ask("start", order)

    assert started.keys() == {"pid"}
    assert ask("alive", order) == started
    assert ask("stop", order) == {}
    assert ask("dance", order) == {"error": "unknown request 'dance'; there are start, alive and stop"}
    assert "name" in str(ask("start", b"{}")["error"])
