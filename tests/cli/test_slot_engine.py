"""The engine that `paceline exec` starts: real processes, kills, and an end by itself."""

import json
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.cli.conftest import Workspace, finish, lines_of, read_until
from tests.executors.conftest import until
from tests.slot_engines import slot_engines
from tests.warm_process import WarmProcess

from paceline.daemon.home import open_home
from paceline.leadership.election import ENGINE, LeaderLock

HOLD = "echo {0} >> starts; echo {0} runs; while [ ! -e {0}.go ]; do sleep 0.05; done; echo {0} >> ends"


def hold(workspace: Workspace, name: str, *options: str) -> WarmProcess:
    return workspace.start("exec", *options, "--", "sh", "-c", HOLD.format(name))


def let_go(workspace: Workspace, *names: str) -> None:
    for name in names:
        (workspace.folder / f"{name}.go").touch()


def test_programs_that_begin_at_once_share_one_engine(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_POOL", "2")
    names = ("a", "b", "c", "d")
    programs = [hold(workspace, name) for name in names]

    until(lambda: len(lines_of(workspace.folder / "starts")) == 2)
    until(lambda: len(slot_engines(workspace.folder)) == 1)
    assert len(lines_of(workspace.folder / "starts")) == 2
    let_go(workspace, *names)

    assert [finish(each)[0] for each in programs] == [0, 0, 0, 0]
    assert sorted(lines_of(workspace.folder / "ends")) == list(names)
    assert len(slot_engines(workspace.folder)) == 1


def test_an_engine_that_is_killed_is_replaced_and_what_is_held_still_counts(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_POOL", "1")
    first = hold(workspace, "a")
    read_until(first, "a runs")
    second = hold(workspace, "b")
    assert second.stderr is not None
    assert "sessions at its limit (1/1)" in second.stderr.readline()
    (killed,) = slot_engines(workspace.folder)

    os.kill(killed, signal.SIGKILL)

    until(lambda: slot_engines(workspace.folder) not in ([], [killed]))
    assert lines_of(workspace.folder / "starts") == ["a"]
    let_go(workspace, "a", "b")
    assert (finish(first)[0], finish(second)[0]) == (0, 0)
    assert lines_of(workspace.folder / "ends") == ["a", "b"]


class Counting(ThreadingHTTPServer):
    """A provider that counts its sessions itself."""

    sessions = 1
    polls = 0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Count)


class Count(BaseHTTPRequestHandler):
    server: Counting

    def do_GET(self) -> None:
        body = json.dumps({"usage": {"concurrent_sessions": self.server.sessions}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.server.polls += 1

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_nobody_enters_without_a_reading_because_an_engine_was_killed(workspace: Workspace) -> None:
    with Counting() as provider:
        threading.Thread(target=provider.serve_forever, daemon=True).start()
        usage = f'usage_url = "http://127.0.0.1:{provider.server_port}"'
        workspace.write("paceline.toml", f"[providers.umans]\n{usage}\n[limits]\numans = 1\n")
        first = hold(workspace, "a", "--scope", "umans")
        read_until(first, "a runs")
        second = hold(workspace, "b", "--scope", "umans")
        assert second.stderr is not None
        assert "umans at its limit (1/1)" in second.stderr.readline()
        (killed,) = slot_engines(workspace.folder)

        os.kill(killed, signal.SIGKILL)
        let_go(workspace, "a", "b")
        ended, polls = finish(first)[0], provider.polls
        until(lambda: provider.polls >= polls + 2)
        while_counted = lines_of(workspace.folder / "starts")
        provider.sessions = 0

        assert (ended, while_counted, finish(second)[0]) == (0, ["a"], 0)
        assert lines_of(workspace.folder / "ends") == ["a", "b"]
        provider.shutdown()


def test_it_starts_no_work_and_is_no_engine_to_a_person(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("echo unit >> ends", "u"))
    program = hold(workspace, "a")
    read_until(program, "a runs")

    status = workspace.run_json("status")
    workspace.run("pool", "3")

    assert (status["engine"]["state"], status["units"]["todo"]) == ("stopped", 1)
    assert "no engine" in workspace.run("why", "docs/u").stdout
    let_go(workspace, "a")
    assert finish(program)[0] == 0
    assert finish(workspace.start("run", workspace.folder / "docs.toml"))[0] == 0  # it makes way
    assert lines_of(workspace.folder / "ends") == ["a", "unit"]
    until(lambda: slot_engines(workspace.folder) == [])  # its lock is free before its process has ended


def test_it_ends_by_itself_when_nothing_has_needed_it_for_a_while(workspace: Workspace) -> None:
    program = hold(workspace, "a")
    read_until(program, "a runs")
    (pid,) = slot_engines(workspace.folder)
    os.kill(pid, signal.SIGTERM)
    until(lambda: not slot_engines(workspace.folder))
    serving = subprocess.Popen([sys.executable, "-m", "paceline.daemon.slot_engine", "1"], cwd=workspace.folder)
    lock = LeaderLock(workspace.home, ENGINE)
    until(lambda: (leader := lock.holder()) is not None and leader.pid == serving.pid)
    with pytest.raises(subprocess.TimeoutExpired):
        serving.wait(2.0)  # a program has a slot

    let_go(workspace, "a")
    assert finish(program)[0] == 0

    assert serving.wait(30) == 0
    with open_home() as home:
        assert (home.leader(), home.store.leader(now=0.0), home.store.slots()) == (None, None, [])


def test_an_engine_that_cannot_start_is_reported(workspace: Workspace) -> None:
    workspace.home.mkdir()
    (workspace.home / "spool").touch()  # no session could be followed

    code, _, err = finish(workspace.start("exec", "--", "true"))

    assert code != 0
    assert "the engine that serves slots could not be started" in err
    assert "spool" in err
