"""`paceline worker` as a process: wrong use, a home that is in use, and a leader that refuses."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from tests.cli.shell import PATIENCE_SECONDS, Shell
from tests.cli.shell import shell as shell

from paceline.hosts.worker.worker import WORKER_LOCK
from paceline.leadership.election import ENGINE, LeaderLock

NOBODY = "http://127.0.0.1:1"


@pytest.fixture
def token(tmp_path: Path) -> str:
    file = tmp_path / "box1.token"
    file.write_text("box1.s3cret\n")
    return str(file)


class _Refusing(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.dumps({"error": "taken", "detail": "host box1 has a worker already"}).encode()
        self.send_response(409)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def refusing_leader() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_worker_that_the_leader_refuses_ends_with_the_leaders_reason(
    shell: Shell, token: str, refusing_leader: str
) -> None:
    _, err = shell.run("worker", "--connect", refusing_leader, "--token-file", token, code=2)

    assert f"Error: the leader at {refusing_leader} refuses this worker: host box1 has a worker already" in err


def test_a_worker_without_a_token_says_where_it_looks_for_one(shell: Shell) -> None:
    _, err = shell.run("worker", "--connect", NOBODY, code=2)

    assert "pass --token-file FILE, or set PACELINE_TOKEN" in err


def test_a_token_of_another_host_is_refused(shell: Shell, token: str) -> None:
    _, err = shell.run("worker", "--connect", NOBODY, "--token-file", token, "--name", "box2", code=2)

    assert "--name is 'box2', but the token is one of 'box1'" in err


@pytest.mark.parametrize(("lock", "who"), [(WORKER_LOCK, "another worker"), (ENGINE, "an engine")])
def test_one_home_has_one_worker_and_no_engine(shell: Shell, token: str, lock: str, who: str) -> None:
    shell.home.mkdir()
    held = LeaderLock(shell.home, lock)
    assert held.take()
    _, err = shell.run("worker", "--connect", NOBODY, "--token-file", token, code=75)
    held.release()

    assert f"{who} uses {shell.home}: stop it, or set PACELINE_HOME to another folder" in err


def test_a_worker_without_a_leader_waits_and_ends_well_when_it_is_stopped(shell: Shell, token: str) -> None:
    process = shell.start("worker", "--connect", NOBODY, PACELINE_TOKEN="box1.s3cret")
    assert process.stderr is not None
    lines = [process.stderr.readline() for _ in range(2)]
    process.terminate()
    _, err = process.communicate(timeout=PATIENCE_SECONDS)

    assert "the worker of box1 begins" in lines[0]
    assert f"no leader answers ({NOBODY}: " in lines[1]
    assert (process.returncode, "its sessions continue" in err) == (0, True)
    assert "Traceback" not in err
