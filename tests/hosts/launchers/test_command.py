"""Workers that a command of the user starts."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from paceline.errors import LaunchFailed
from paceline.hosts.launchers.command import CommandLauncher
from paceline.settings import HostSettings
from paceline.testing import stand_in_worker
from paceline.testing.launcher_contract import LauncherContract, LaunchSite, stand_in_start

SERVICE = """
import os, signal, subprocess, sys, time
action, home, rest = sys.argv[1], sys.argv[2], sys.argv[3:]
pid_file = os.path.join(home, "pid")
def running():
    try:
        pid = int(open(pid_file).read())
        with open(f"/proc/{pid}/stat") as stat:
            return pid if stat.read().rpartition(")")[2].split()[0] != "Z" else None
    except (OSError, ValueError):
        return None
if action == "start" and running() is None:
    os.makedirs(home, mode=0o700, exist_ok=True)
    worker = [sys.executable, *rest]
    started = subprocess.Popen(worker, env={**os.environ, "PACELINE_HOME": home}, start_new_session=True)
    print(started.pid, file=open(pid_file, "w"))
elif action == "alive":
    sys.exit(0 if running() else 1)
elif action == "stop" and (pid := running()):
    os.kill(pid, signal.SIGTERM)
    while running():
        time.sleep(0.01)
"""
"""What a service manager does: start a named service once, tell whether it runs, end it."""


def host(tmp_path: Path, **fields: object) -> HostSettings:
    service = tmp_path / "service.py"
    service.write_text(SERVICE)
    program = (sys.executable, str(service))
    options = ("--connect", "{url}", "--name", "{name}", "--token-file", "{token_file}")
    values = {
        "name": "box1",
        "command": (*program, "start", "{home}", stand_in_worker.__file__, *options),
        "alive": (*program, "alive", "{home}"),
        "stop": (*program, "stop", "{home}"),
        "home": str(tmp_path / "worker"),
        **fields,
    }
    return msgspec.convert(values, HostSettings)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "hosts"
    made.mkdir(mode=0o700)
    return made


class TestCommandLauncher(LauncherContract):
    @pytest.fixture
    def site(self, tmp_path: Path, folder: Path) -> Iterator[LaunchSite]:
        def launcher(**fields: object) -> CommandLauncher:
            return CommandLauncher(host(tmp_path, **fields), folder, os.environ)

        start = stand_in_start("box1", tmp_path / "worker")
        site = LaunchSite(
            launcher=launcher,
            worker=msgspec.structs.replace(start, connect=start.connect[:1], program=()),
            troubles=(
                (launcher(command=("no-such-program", "x")), ("'no-such-program x'", "there is no such program")),
                (launcher(command=("sh", "-c", "echo no room >&2; exit 3")), ("exit code 3: no room",)),
                (launcher(alive=("sh", "-c", "no-such-tool")), ("could not be run (exit code 127)", "no-such-tool")),
            ),
            folders=(folder,),
        )
        yield site
        site.clear()


def test_without_a_command_for_it_nobody_can_tell_whether_the_worker_is_there(tmp_path: Path, folder: Path) -> None:
    assert CommandLauncher(host(tmp_path, alive=()), folder, {}).is_alive() is None


def test_the_words_of_the_command_are_filled_in_and_other_braces_stay(tmp_path: Path, folder: Path) -> None:
    words = ("{name}", "{url}", "{token_file}", "{home}/x", "{labels}", "{}", "{a b}")
    command = (sys.executable, "-c", f"import sys; open({str(tmp_path / 'words')!r}, 'w').write(repr(sys.argv[1:]))")
    box = host(tmp_path, command=(*command, *words), alive=(), labels=("gpu", "big"))

    CommandLauncher(box, folder, os.environ).start(stand_in_start("box1", tmp_path / "w"))

    filled = ["box1", "http://127.0.0.1:7433", f"{folder}/token", f"{tmp_path}/w/x", "gpu,big", "{}", "{a b}"]
    assert (tmp_path / "words").read_text() == repr(filled)
    assert (folder / "token").stat().st_mode & 0o777 == 0o600


def test_a_command_does_not_get_the_token_of_its_leader(tmp_path: Path, folder: Path) -> None:
    box = host(tmp_path, command=("sh", "-c", 'exit "${PACELINE_TOKEN:-0}"'), alive=())

    CommandLauncher(box, folder, {**os.environ, "PACELINE_TOKEN": "7"}).start(stand_in_start("box1", tmp_path / "w"))


def test_a_command_that_stays_is_ended_with_advice(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.hosts.launchers.command.COMMAND_SECONDS", 0.2)

    with pytest.raises(
        LaunchFailed, match=r"host box1: .* did not return within 0.2 s; it must leave the worker behind"
    ):
        CommandLauncher(host(tmp_path, command=("sleep", "600"), alive=()), folder, os.environ).start(
            stand_in_start("box1", tmp_path / "w")
        )
