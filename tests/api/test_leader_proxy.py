"""What a standby passes on to the leader, over real HTTP."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import msgspec
import pytest

from paceline.api.bodies import App, Receive, Scope, Send
from paceline.api.leader_proxy import PATIENCE_SECONDS, LeaderProxy, is_read
from paceline.api.server import serve
from paceline.api.tokens import AccessTokens
from paceline.leadership.election import Leader, this_machine

TOKENS = AccessTokens("f" * 40, "r" * 40)
Answer = Callable[[Scope, Receive, Send], Awaitable[None]]


class Seen:
    """A leader that remembers the requests it got, and answers them as the test says."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self._answer = answer or say_ok

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            self.requests.append((scope["method"], scope["path"], headers))
            await self._answer(scope, receive, send)
        else:
            await answer_lifespan(receive, send)


async def say_ok(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"set-cookie", b"a=1")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def break_off(scope: Scope, receive: Receive, send: Send) -> None:
    """Die after the head, as a leader that is killed."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"100")]})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})
    raise RuntimeError("killed")


async def hang_up(scope: Scope, receive: Receive, send: Send) -> None:
    """Die before the head."""
    raise ConnectionAbortedError


async def answer_lifespan(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return


def leader_at(url: str | None, machine: str | None = None) -> Leader:
    return Leader(owner="one", pid=1, since=0.0, host="box", machine=machine or this_machine(), url=url)


@contextlib.asynccontextmanager
async def standby_of(*leaders: Leader | None) -> AsyncIterator[httpx.AsyncClient]:
    """A process that finds these leaders, one after the other, and then the last one each time."""
    found = list(leaders)
    proxy = LeaderProxy(lambda: found.pop(0) if len(found) > 1 else found[0], TOKENS)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await proxy.beside(say_own)(scope, receive, send)
        else:
            await answer_lifespan(receive, send)

    async with serve(app) as served, httpx.AsyncClient(base_url=served.url, timeout=60.0) as client:
        yield client
    await proxy.aclose()


async def say_own(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"own"})


@contextlib.asynccontextmanager
async def fleet(app: App, **leader: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with serve(app) as served, standby_of(leader_at(served.url, **leader)) as client:
        yield client


async def test_reads_are_served_here_and_changes_by_the_leader() -> None:
    seen = Seen()
    async with fleet(seen) as client:
        own, passed = await client.get("/v1/status"), await client.put("/v1/pool?a=b", json={"sessions": 3})

    assert (own.text, passed.text) == ("own", "ok")
    assert [(method, path) for method, path, _ in seen.requests] == [("PUT", "/v1/pool")]


async def test_nothing_is_added_to_a_call_but_the_mark_that_it_was_passed_on() -> None:
    seen = Seen()
    async with fleet(seen) as client:
        for _ in range(2):  # the cookie of the first answer is not sent with the second call
            request = httpx.Request("POST", client.base_url.join("/gateway/key/v1/messages"), content=b"{}")
            await client.send(request)

    port = seen.requests[0][2]["host"].partition(":")[2]
    expected = {"host": f"localhost:{port}", "content-length": "2", "x-paceline-passed": "1"}
    assert [headers for _, _, headers in seen.requests] == [expected] * 2


async def test_a_request_is_not_passed_on_twice() -> None:
    async with standby_of(leader_at("http://127.0.0.1:1")) as client:
        refused = await client.put("/v1/pool", json={}, headers={"x-paceline-passed": "1"})

    assert (refused.status_code, refused.json()["detail"]) == (503, "this process does not lead; ask the one that does")


async def test_an_answer_that_breaks_off_is_not_asked_for_again() -> None:
    seen = Seen(break_off)
    async with fleet(seen) as client:
        with contextlib.suppress(httpx.RemoteProtocolError):
            await client.post("/gateway/key/v1/messages", json={})

    assert len(seen.requests) == 1


async def test_a_slot_without_a_key_is_not_requested_twice() -> None:
    """The first leader may have granted it."""
    closing = await asyncio.start_server(close_after_request, "127.0.0.1", 0)
    port = closing.sockets[0].getsockname()[1]
    async with closing, standby_of(leader_at(f"http://127.0.0.1:{port}")) as client:
        refused = await client.post("/v1/slots", json={"scope": "anthropic"})

    assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")


@pytest.mark.parametrize(
    ("path", "status", "requests"), [("/v1/pool", 200, [("PUT", "/v1/pool")]), ("/v1/slots", 503, [])]
)
async def test_a_change_that_a_frozen_leader_has_taken_in_is_not_left_to_it_once_another_one_leads(
    path: str, status: int, requests: list[tuple[str, str]]
) -> None:
    """A slot without a key is refused: the frozen one may have granted it."""
    seen = Seen()
    method = "POST" if path == "/v1/slots" else "PUT"
    with socket.create_server(("127.0.0.1", 0)) as frozen:  # the kernel takes in what comes
        before = leader_at(f"http://127.0.0.1:{frozen.getsockname()[1]}")
        async with serve(seen) as served:
            after = msgspec.structs.replace(leader_at(served.url), owner="two")
            async with standby_of(before, before, None, after) as client:
                answered = await client.request(method, path, json={})

    assert answered.status_code == status
    assert [(method, path) for method, path, _ in seen.requests] == requests


async def test_a_call_that_the_leader_breaks_off_again_is_answered_in_the_shape_of_the_provider() -> None:
    requests = 0

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        await reader.readuntil(b"\r\n\r\n")
        requests += 1
        writer.close()

    closing = await asyncio.start_server(count, "127.0.0.1", 0)
    port = closing.sockets[0].getsockname()[1]
    async with closing, standby_of(leader_at(f"http://127.0.0.1:{port}")) as client:
        refused = await client.post("/gateway/key/v1/messages", json={})

    error = refused.json()
    assert (refused.status_code, error["type"], error["error"]["type"]) == (503, "error", "api_error")
    assert requests == 2


async def close_after_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.close()


async def refusal(leader: Leader, monkeypatch: Any) -> str:
    monkeypatch.setattr("paceline.api.leader_proxy.PATIENCE_SECONDS", 0.1)
    async with standby_of(leader) as client:
        answer = await client.put("/v1/pool", json={})
    assert answer.status_code == 503
    return str(answer.json()["detail"])


async def test_a_leader_that_cannot_be_reached_from_here_is_not_asked(monkeypatch: Any) -> None:
    assert PATIENCE_SECONDS > 15  # a take-over takes up to 15 s
    elsewhere = leader_at("http://127.0.0.1:1", machine="other/1")
    plain = leader_at("http://box.example:1", machine="other/1")
    foreground = leader_at(None)

    assert [await refusal(leader, monkeypatch) for leader in (elsewhere, plain, foreground)] == [
        "process 1 on box listens only on its own machine; start it with --host and TLS; try again",
        "process 1 on box has no TLS: give it a certificate, or start this process with --insecure; try again",
        "process 1 on box runs a plan in the foreground, and serves nothing; try again",
    ]


@pytest.mark.parametrize("path", ["/v1/gateway", "/v1/gateway/requests", "/v1/gateway/spend", "/v1/slots/a"])
def test_only_the_leader_answers_about_its_calls(path: str) -> None:
    assert not is_read("GET", path)
    assert is_read("GET", "/v1/overview")
