"""A stop of `paceline up` while calls run through its gateway: a real daemon, a real provider, real signals."""

import contextlib
import json
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from tests.cli.shell import PATIENCE_SECONDS, Shell, url_of

from paceline.testing import FakeProvider
from paceline.testing.provider import Scenario

CALL = {"model": "claude-opus-4-6", "max_tokens": 999, "messages": [{"role": "user", "content": "hi"}], "stream": True}
LONG = Scenario(tokens_per_second=20.0, reply_tokens=10_000)
READY = "Waiting for a running call"


class Daemon:
    """The daemon with one account, and a stream that runs through its gateway."""

    def __init__(self, shell: Shell, url: str, drain: str) -> None:
        (shell.folder / "paceline.toml").write_text(
            f'[api]\ndrain = "{drain}"\n[accounts.work]\nprovider = "anthropic"\nkind = "metered"\n'
            f'base_url = "{url}"\nkey_env = "WORK_KEY"\n'
        )
        self.process, line = shell.up(WORK_KEY="sk-1")
        base, _, token = url_of(line).partition("/?token=")
        self.client = httpx.Client(
            base_url=f"{base}/gateway/work", headers={"x-api-key": token}, timeout=PATIENCE_SECONDS, trust_env=False
        )

    @contextlib.contextmanager
    def streaming(self) -> Iterator[Iterator[bytes]]:
        """A stream of which a first piece has come."""
        with self.client.stream("POST", "/v1/messages", json=CALL) as answer:
            pieces = answer.iter_raw()
            next(pieces)
            yield pieces

    def __enter__(self) -> "Daemon":
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> str:
        """What it says to that, if anything."""
        self.process.send_signal(number)
        assert self.process.stderr is not None
        return self.process.stderr.readline()


def test_calls_that_run_are_finished_and_no_more_are_taken(shell: Shell) -> None:
    with FakeProvider(Scenario(tokens_per_second=20.0, reply_tokens=60)) as provider:
        with Daemon(shell, provider.url, "30s") as daemon, daemon.streaming() as pieces:
            said = daemon.stop()
            refused = daemon.client.post("/v1/messages", json=CALL)
            streamed = b"".join(pieces)
        code = daemon.process.wait(PATIENCE_SECONDS)

        assert [request.ending for request in provider.requests] == ["served"]
    assert said == "Waiting for a running call, up to 30 s; Ctrl-C again stops now.\n"
    assert (refused.status_code, refused.json()["error"]["message"]) == (503, "the daemon is stopping")
    assert 10 <= int(refused.headers["retry-after"]) <= 40
    assert (b"event: message_stop" in streamed, code) == (True, 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_is_not_waited_for(shell: Shell, number: signal.Signals) -> None:
    with FakeProvider(LONG) as provider:
        with Daemon(shell, provider.url, "1h") as daemon, daemon.streaming() as pieces:
            said = daemon.stop(number)
            daemon.process.send_signal(number)
            with pytest.raises(httpx.RemoteProtocolError):
                b"".join(pieces)
        code = daemon.process.wait(PATIENCE_SECONDS)

    assert (said.startswith(READY), code) == (True, 0)


def test_calls_that_take_too_long_are_cut_off(shell: Shell) -> None:
    with FakeProvider(LONG) as provider:
        with Daemon(shell, provider.url, "300ms") as daemon, daemon.streaming() as pieces:
            said = daemon.stop()
            with pytest.raises(httpx.RemoteProtocolError):
                b"".join(pieces)
        code = daemon.process.wait(PATIENCE_SECONDS)

    assert (said.startswith(READY), code) == (True, 0)


class Unpaid(BaseHTTPRequestHandler):
    """Answers on request of the test."""

    is_asked = threading.Event()
    may_answer = threading.Event()

    def do_POST(self) -> None:
        body = b'{"type": "error", "error": {"type": "billing_error", "message": "no credit left"}}'
        self.rfile.read(int(self.headers["content-length"]))
        self.is_asked.set()
        self.may_answer.wait(PATIENCE_SECONDS)
        self.send_response(402)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - its name for it


def test_what_a_call_teaches_after_the_signal_is_kept(shell: Shell) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Unpaid) as upstream, ThreadPoolExecutor() as threads:
        threads.submit(upstream.serve_forever)
        with Daemon(shell, f"http://127.0.0.1:{upstream.server_port}", "30s") as daemon:
            asking = threads.submit(daemon.client.post, "/v1/messages", json=CALL)
            assert Unpaid.is_asked.wait(PATIENCE_SECONDS)
            said = daemon.stop()
            Unpaid.may_answer.set()
            answer = asking.result()
        code = daemon.process.wait(PATIENCE_SECONDS)
        upstream.shutdown()
    scopes = json.loads(shell.run("limits", "--json")[0])

    assert (said.startswith(READY), answer.status_code, code) == (True, 402, 0)
    assert "no credit left" in json.dumps(scopes)
