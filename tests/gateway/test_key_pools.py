"""Pools of keys: the choice of an account, fail-over before the first byte, sessions, fallback routes."""

import asyncio
import contextlib
import gc
import json
import socket
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from tests.gateway.gateway_harness import GatewayHarness, account, until
from tests.gateway.raw_http import Message, RawUpstream, Wire, connect, ok, post

from paceline import Limiter
from paceline.core.signals import BillingStop, QuotaClosed, RateLimited
from paceline.engine.commands import digest_of_key
from paceline.gateway import ClientKeys, SpendLedger, Timeouts
from paceline.gateway.client_response import members_of
from paceline.gateway.key_pools import (
    MOST_SESSIONS,
    KeyPools,
    PoolRequest,
    look_again_seconds,
    with_model,
)
from paceline.gateway.request_access import RequestAccess, RequestHead
from paceline.gateway.routes import ModelNames
from paceline.limiter.slot import AdmissionRequest
from paceline.settings import FallbackRoute, KeyPoolSettings
from paceline.settings.model import price_list
from paceline.store import ClientKey, SqliteStore
from paceline.testing import VirtualClock
from paceline.views.gateway_calls import MemberFailure

START = 1_700_000_000.0
ENVIRON = {"KEY_A": "sk-a", "KEY_B": "sk-b", "KEY_C": "sk-c"}
TEAM = b"/gateway/team/v1/messages"
MODEL = "anthropic/{}/opus-4-6"


def refusal(status: int, kind: str, *headers: bytes) -> bytes:
    body = json.dumps({"type": "error", "error": {"type": kind, "message": f"{kind} of the provider"}}).encode()
    lines = b"".join(b"%b\r\n" % line for line in headers)
    return b"HTTP/1.1 %d No\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n%b" % (
        status, lines, len(body), body,
    )  # fmt: skip


RATE_LIMITED = refusal(429, "rate_limit_error", b"retry-after: 20")
OVERLOADED = refusal(529, "overloaded_error")
UNAUTHORIZED = refusal(401, "authentication_error")


class Provider:
    """An upstream that answers by the key of a request. A key without an answer gets 200."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}
        self.seen: list[tuple[str, Message]] = []
        self.gate: asyncio.Event | None = None

    async def handle(self, wire: Wire) -> None:
        while True:
            request = await wire.read_message()
            key = (request.header(b"x-api-key") or request.header(b"x-goog-api-key") or b"").decode()
            self.seen.append((key, request))
            if self.gate is not None:
                await self.gate.wait()
            wire.send(self.answers.get(key, ok()))
            await wire.writer.drain()

    def has_seen(self, count: int) -> bool:
        return len(self.seen) == count

    @property
    def keys(self) -> list[str]:
        return [key for key, _ in self.seen]


class Team:
    """A gateway with the pool `team` of `key-a` and `key-b`, on a clock that only the test moves."""

    def __init__(self, provider: Provider, harness: GatewayHarness, clock: VirtualClock) -> None:
        self.provider = provider
        self.harness = harness
        self.limiter = harness.limiter
        self.clock = clock

    async def call(self, *headers: bytes, path: bytes = TEAM, body: bytes = b'{"model": "claude-opus-4-6"}') -> Message:
        async with await connect(self.harness.port) as client:
            client.send(post(body, *headers, path=path))
            return await client.read_message()

    def failures(self) -> list[MemberFailure]:
        return self.harness.gateway.calls.activity().failures


@contextlib.asynccontextmanager
async def team(
    *,
    limits: dict[str, int] | None = None,
    environ: dict[str, str] | None = None,
    provider: str = "anthropic",
    **pool: Any,
) -> AsyncIterator[Team]:
    upstream, clock = Provider(), VirtualClock(START)
    settings = KeyPoolSettings(**({"name": "team", "accounts": ("key-a", "key-b")} | pool))
    limiter = Limiter(limits=limits or {}, clock=clock, slot_timeout=3600.0)
    async with RawUpstream(upstream.handle) as server:
        variables = {name: f"KEY_{name[-1].upper()}" for name in ("key-a", "key-b", "key-c")}
        harness = GatewayHarness(
            *(account(server.url, name, provider, key_env=variable) for name, variable in variables.items()),
            limiter=limiter,
            clock=clock,
            environ=ENVIRON if environ is None else environ,
            pools={"team": settings},
        )
        async with harness:
            yield Team(upstream, harness, clock)


@pytest.mark.parametrize("refused", [RATE_LIMITED, OVERLOADED, UNAUTHORIZED], ids=["429", "529", "401"])
async def test_a_request_that_one_key_refuses_is_served_by_the_next_key(refused: bytes) -> None:
    async with team() as at:
        at.provider.answers["sk-a"] = refused
        got = await at.call()
        again = await at.call()

    assert (got.status, got.body, got.header(b"x-paceline-account")) == (200, b"{}", b"key-b")
    assert got.header(b"x-paceline-scope") == b"anthropic/key-b/opus-4-6"
    assert (again.status, at.provider.keys) == (200, ["sk-a", "sk-b", "sk-b"])


async def test_requests_that_ended_leave_nothing_to_the_garbage_collector() -> None:
    """Its collections would hold up all requests for milliseconds."""
    async with team() as at, await connect(at.harness.port) as client:
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                client.send(post(b'{"model": "claude-opus-4-6"}', path=TEAM))
                await client.read_message()
            known = [each for each in gc.get_objects() if isinstance(each, PoolRequest)]
        finally:
            gc.enable()

    assert len(known) == 1  # that of the last exchange on the connection


async def test_a_bad_key_is_doubted_as_without_a_pool() -> None:
    async with team() as at:
        at.provider.answers["sk-a"] = UNAUTHORIZED
        await at.call()
        status = at.limiter.scope_status("anthropic/key-a")

    assert status is not None
    assert status.held is not None or status.paused


async def test_when_each_key_was_refused_the_client_gets_the_providers_own_answer() -> None:
    async with team() as at:
        at.provider.answers |= {"sk-a": UNAUTHORIZED, "sk-b": UNAUTHORIZED}
        got = await at.call()

    assert (got.status, at.provider.keys) == (401, ["sk-a", "sk-b"])
    assert json.loads(got.body)["error"]["message"] == "authentication_error of the provider"


async def test_a_pool_whose_keys_were_all_refused_answers_at_once_until_one_call_may_ask_again() -> None:
    async with team() as at:
        at.provider.answers |= {"sk-a": UNAUTHORIZED, "sk-b": UNAUTHORIZED}
        first, second = await at.call(), await at.call()
        await at.clock.advance(61.0)
        at.provider.answers.clear()
        later = await at.call()

    reason = "the login was refused and is asked again: authentication_error of the provider"
    refused = f"anthropic/key-a: {reason}; anthropic/key-b: {reason}"
    assert [each.status for each in (first, second, later)] == [401, 401, 200]
    assert json.loads(second.body) == {
        "type": "error",
        "error": {
            "type": "authentication_error",
            "message": f"no account of the pool team can serve this: {refused}",
        },
    }
    assert at.provider.keys == ["sk-a", "sk-b", "sk-a"]


@pytest.mark.parametrize("path", [TEAM, b"/gateway/key-a/v1/messages"], ids=["pool", "account"])
async def test_calls_that_wait_for_a_key_are_answered_as_soon_as_it_is_refused(path: bytes) -> None:
    async with team(limits={"anthropic/key-a": 1}, accounts=("key-a",)) as at:
        at.provider.answers["sk-a"] = UNAUTHORIZED
        at.provider.gate = asyncio.Event()
        calls = [asyncio.create_task(at.call(path=path)) for _ in range(3)]
        await until(lambda: at.harness.gateway.calls.counts().waiting == 2)
        at.provider.gate.set()
        await until(lambda: any(call.done() for call in calls))
        await at.clock.advance(look_again_seconds(3))  # a pool checks its keys again
        got = [await call for call in calls]

        assert at.harness.in_flight == 0
    assert ([each.status for each in got], at.provider.keys) == ([401] * 3, ["sk-a"])


async def test_nothing_is_sent_again_after_the_first_byte_reached_the_client() -> None:
    broken = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 999\r\n\r\nevent: error\ndata: {}\n\n"
    )
    async with team() as at:
        at.provider.answers["sk-a"] = broken
        async with await connect(at.harness.port) as client:
            client.send(post(path=TEAM))
            got = await client.read_head()
            first = await client.reader.readexactly(12)

    assert (got.status, got.header(b"x-paceline-account"), first) == (200, b"key-a", b"event: error")
    assert at.provider.keys == ["sk-a"]


async def test_an_unknown_model_gets_the_providers_own_answer_and_nothing_is_learnt_from_it() -> None:
    async with team() as at:
        at.provider.answers["sk-a"] = refusal(404, "not_found_error")
        got = await at.call()
        statuses = [at.limiter.scope_status(scope) for scope in ("anthropic/key-a", MODEL.format("key-a"))]

    assert (got.status, at.provider.keys) == (404, ["sk-a"])
    assert [(each.paused, each.held, each.adaptive, each.windows) for each in statuses if each is not None] == [
        (False, None, None, ())
    ] * 2


async def test_an_invalid_request_is_not_sent_to_another_key() -> None:
    async with team() as at:
        at.provider.answers["sk-a"] = refusal(400, "invalid_request_error")
        got = await at.call()

    assert (got.status, at.provider.keys) == (400, ["sk-a"])


async def test_calls_are_spread_over_the_least_loaded_keys() -> None:
    async with team(limits={"anthropic/key-a": 1, "anthropic/key-b": 3}) as at:
        at.provider.gate = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            calls = []
            for count in range(1, 5):
                calls.append(tasks.create_task(at.call()))
                await until(partial(at.provider.has_seen, count))
            at.provider.gate.set()

    assert sorted(at.provider.keys) == ["sk-a", "sk-b", "sk-b", "sk-b"]
    assert [call.result().status for call in calls] == [200] * 4


async def test_calls_one_after_another_take_turns() -> None:
    async with team() as at:
        for _ in range(4):
            await at.call()

    assert at.provider.keys == ["sk-a", "sk-b", "sk-a", "sk-b"]


async def test_a_closed_window_a_hold_and_a_pause_are_skipped() -> None:
    async with team(accounts=("key-c", "key-a", "key-b")) as at:
        at.limiter.report("anthropic/key-c", BillingStop(detail="the balance is too low"))
        at.limiter.report("anthropic/key-a", QuotaClosed(resets_at=START + 9000.0, window="five_hour"))
        first = await at.call()
        at.limiter.report("anthropic/key-b", RateLimited(retry_after=5.0))
        waiting = asyncio.create_task(at.call())
        await until(lambda: at.harness.gateway.calls.counts().waiting == 1)
        for _ in range(8):
            await at.clock.advance(1.0)
        second = await waiting

    assert [(each.status, each.header(b"x-paceline-account")) for each in (first, second)] == [(200, b"key-b")] * 2
    assert second.header(b"x-paceline-waited-ms") == b"5000"


async def test_a_request_that_waits_for_one_key_takes_another_that_gets_free() -> None:
    async with team(limits={"anthropic/key-a": 1, "anthropic/key-b": 1}) as at:
        held = [await at.limiter.acquire(f"anthropic/{name}") for name in ("key-a", "key-b")]
        waiting = asyncio.create_task(at.call())
        await until(lambda: at.harness.gateway.calls.counts().waiting == 1)
        (request,) = at.harness.gateway.calls.requests(0).waiting
        other = held[1 if request.account == "key-a" else 0]
        other.release()
        await at.clock.advance(look_again_seconds(1))
        got = await waiting

    assert (got.status, got.header(b"x-paceline-account") != (request.account or "").encode()) == (200, True)


async def test_a_pool_whose_keys_are_all_held_answers_at_once_and_says_why() -> None:
    async with team() as at:
        for name in ("key-a", "key-b"):
            at.limiter.report(f"anthropic/{name}", BillingStop(detail="the balance is too low"))
        got = await at.call()

    error = json.loads(got.body)
    assert (got.status, error["type"], error["error"]["type"]) == (403, "error", "permission_error")
    why = "anthropic/{} is held: the balance is too low; lift the hold when that is fixed"
    reasons = f"{why.format('key-a')}; {why.format('key-b')}"
    assert error["error"]["message"] == f"no account of the pool team can serve this: {reasons}"
    assert at.provider.seen == []


async def test_a_key_that_is_not_set_is_skipped() -> None:
    async with team(environ={"KEY_B": "sk-b"}) as at:
        got = await at.call()
        listed = await at.call(path=b"/gateway/team/v1/messages/count_tokens")
    async with team(environ={"KEY_C": "sk-c"}) as none:
        refused = await none.call()

    assert [(each.status, at.provider.keys) for each in (got, listed)] == [(200, ["sk-b", "sk-b"])] * 2
    assert refused.status == 401
    assert b"KEY_A" in refused.body


async def test_when_the_wait_runs_out_the_client_is_told_when_to_retry() -> None:
    async with team() as at:
        for name in ("key-a", "key-b"):
            at.limiter.report(f"anthropic/{name}", QuotaClosed(resets_at=START + 9000.0, window="five_hour"))
        waiting = asyncio.create_task(at.call(b"x-paceline-max-wait: 3"))
        await until(lambda: at.harness.gateway.calls.counts().waiting == 1)
        for _ in range(6):
            await at.clock.advance(0.5)
        got = await waiting

    assert got.status == 429
    assert int(got.header(b"retry-after") or 0) > 1800
    assert "no slot within 3 s" in json.loads(got.body)["error"]["message"]


async def test_a_client_that_leaves_while_it_waits_or_is_served_leaves_no_slot_behind() -> None:
    async with team(limits={"anthropic/key-a": 1, "anthropic/key-b": 1}) as at:
        at.provider.gate = asyncio.Event()
        clients = [await connect(at.harness.port) for _ in range(3)]
        for client in clients:
            client.send(post(path=TEAM))
        await until(lambda: at.harness.gateway.calls.counts().waiting == 1 and len(at.provider.seen) == 2)
        for client in clients:
            client.reset()
        await until(lambda: not at.harness.gateway.live)
        left = at.harness.in_flight

    assert (left, sorted(at.provider.keys)) == (0, ["sk-a", "sk-b"])


async def test_a_session_keeps_its_key_while_that_is_open() -> None:
    async with team() as at:
        for _ in range(3):
            await at.call(b"x-paceline-session: s1")
        await at.call(path=b"/gateway/team/~s2/v1/messages")
        await at.call(path=b"/gateway/team/~s2/v1/messages")
        at.limiter.report("anthropic/key-a", RateLimited(retry_after=60.0))
        moved = await at.call(b"x-paceline-session: s1")

    assert at.provider.keys == ["sk-a", "sk-a", "sk-a", "sk-b", "sk-b", "sk-b"]
    assert moved.header(b"x-paceline-account") == b"key-b"


@pytest.mark.parametrize(
    "named", ['"metadata": {"user_id": "user_1_session_%s"}', '"prompt_cache_key": "%s"'], ids=["anthropic", "openai"]
)
async def test_a_conversation_that_the_body_names_keeps_its_key(named: str) -> None:
    body = '{"model": "claude-opus-4-6", "messages": [{"content": "\\"prompt_cache_key\\": \\"x\\""}], ' + named + "}"
    async with team() as at:
        for conversation in ("a", "b", "a", "a", "b"):
            await at.call(body=(body % conversation).encode())

    assert at.provider.keys == ["sk-a", "sk-b", "sk-a", "sk-a", "sk-b"]


async def test_a_fallback_route_serves_with_its_model_and_says_so() -> None:
    fallback = (FallbackRoute("key-c", "claude-haiku-4-5"),)
    body = b'{ "model": "claude-opus-4-6", "messages": [ {"content": "\\u00e9 1.50"} ], "max_tokens": 9}'
    async with team(fallback=fallback) as at:
        usual = await at.call(body=body)
        for name in ("key-a", "key-b"):
            at.limiter.report(f"anthropic/{name}", QuotaClosed(resets_at=START + 9000.0, window="five_hour"))
        got = await at.call(body=body)
        (last, _) = at.harness.gateway.calls.requests(2).recent

    assert (usual.header(b"x-paceline-fallback"), at.provider.seen[0][1].body) == (None, body)
    assert (got.status, got.header(b"x-paceline-fallback")) == (200, b"key-c/claude-haiku-4-5")
    assert got.header(b"x-paceline-account") == b"key-c"
    key, sent = at.provider.seen[1]
    assert (key, sent.header(b"content-length")) == ("sk-c", b"%d" % len(sent.body))
    assert sent.body == b'{"model":"claude-haiku-4-5","messages":[ {"content": "\\u00e9 1.50"} ],"max_tokens":9}'
    assert (last.account, last.model, last.scope) == ("key-c", "claude-haiku-4-5", "anthropic/key-c/haiku-4-5")


async def test_a_fallback_is_not_used_while_a_key_only_lacks_room() -> None:
    async with team(limits={"anthropic/key-a": 1}, accounts=("key-a",), fallback=(FallbackRoute("key-c"),)) as at:
        slot = await at.limiter.acquire("anthropic/key-a")
        waiting = asyncio.create_task(at.call())
        await until(lambda: at.harness.gateway.calls.counts().waiting == 1)
        slot.release()
        got = await waiting

    assert (got.header(b"x-paceline-account"), at.provider.keys) == (b"key-a", ["sk-a"])


async def test_a_key_that_allows_some_models_uses_no_fallback_with_another() -> None:
    routes = (FallbackRoute("key-c", "claude-haiku-4-5"), FallbackRoute("key-b"))
    async with team(accounts=("key-a",), fallback=routes) as at:
        at.limiter.report("anthropic/key-a", QuotaClosed(resets_at=START + 9000.0, window="five_hour"))
        store = SqliteStore.in_memory()
        store.create_client_key(ClientKey(name="docs", models=("opus-*",)), digest_of_key(b"pk-paceline-docs"))
        at.harness.gateway.access.keys = ClientKeys(store.client_keys)
        async with await connect(at.harness.port) as client:
            client.send(post(path=TEAM, key=b"x-api-key: pk-paceline-docs"))
            got = await client.read_message()

    assert (got.status, got.header(b"x-paceline-fallback")) == (200, b"key-b/claude-opus-4-6")
    assert [(key, sent.body) for key, sent in at.provider.seen] == [("sk-b", b'{"model": "claude-opus-4-6"}')]


async def test_the_model_in_a_path_is_replaced_there() -> None:
    path = b"/gateway/team/v1beta/models/gemini-3-pro:generateContent"
    async with team(provider="google", accounts=("key-a",), fallback=(FallbackRoute("key-c", "gemini-3-flash"),)) as at:
        at.limiter.report("google/key-a", QuotaClosed(resets_at=START + 9000.0, window="day"))
        got = await at.call(path=path, body=b'{ "contents": [] }')

    ((_, sent),) = at.provider.seen
    assert got.header(b"x-paceline-fallback") == b"key-c/gemini-3-flash"
    assert sent.first_line == b"POST /v1beta/models/gemini-3-flash:generateContent HTTP/1.1"
    assert sent.body == b'{ "contents": [] }'


async def test_an_unknown_address_names_the_pools() -> None:
    async with team() as at:
        got = await at.call(path=b"/gateway/teem/v1/messages")

    assert got.status == 404
    assert b"its pools are: team" in got.body


async def test_the_sessions_of_a_pool_are_bounded() -> None:
    access = RequestAccess([account("http://127.0.0.1:9", "key-a")], token="t" * 20, environ={"WORK_KEY": "sk-a"})
    pool = KeyPoolSettings(name="team", accounts=("key-a",))
    access.use_pools({"team": pool})
    clock = VirtualClock(START)
    pools, limiter = KeyPools(access, ModelNames(), SpendLedger(price_list(), clock)), Limiter(clock=clock)
    head = RequestHead("POST", TEAM, [(b"x-api-key", b"t" * 20)])

    arrived = await access.let_in(head)
    choice = pools.choose(PoolRequest(pool, "opus", None, arrived), limiter, AdmissionRequest)
    assert choice is not None

    for number in range(MOST_SESSIONS + 10):
        pools.begin(PoolRequest(pool, "opus", f"s{number}", arrived, choice=choice))

    assert pools.sessions == MOST_SESSIONS


@pytest.mark.parametrize("body", [b"", b"[1]", b"not json", b'{"messages": []}', b'{"x":' * 9999, None])
def test_a_body_without_a_model_cannot_change_its_model(body: bytes | None) -> None:
    members = None
    with contextlib.suppress(ValueError):
        members = None if body is None else members_of(body)

    assert with_model(RequestHead("POST", TEAM, []), members, "other") is None


# -- accounts that cannot be reached ---------------------------------------------------------------


@contextlib.asynccontextmanager
async def with_dead_account(url: str, *, limits: dict[str, int] | None = None, **pool: Any) -> AsyncIterator[Team]:
    """A pool whose `key-a` is at an address where nobody answers."""
    upstream, clock = Provider(), VirtualClock(START)
    settings = KeyPoolSettings(**({"name": "team", "accounts": ("key-a", "key-b")} | pool))
    async with RawUpstream(upstream.handle) as server:
        harness = GatewayHarness(
            account(url, "key-a", key_env="KEY_A"),
            account(server.url, "key-b", key_env="KEY_B"),
            limiter=Limiter(limits=limits or {}, clock=clock, slot_timeout=3600.0),
            clock=clock,
            timeouts=Timeouts(connect=0.1),
            environ=ENVIRON,
            pools={"team": settings},
        )
        async with harness:
            yield Team(upstream, harness, clock)


def silent_port() -> socket.socket:
    """Return a socket whose queue of connections is full: connecting to it ends with a time-out."""
    return socket.create_server(("127.0.0.1", 0), backlog=0)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://no-such-host.invalid"], ids=["refused", "dns"])
async def test_a_call_goes_past_an_account_that_cannot_be_reached(url: str) -> None:
    async with with_dead_account(url) as at:
        first = await at.call(b"x-paceline-session: s")
        others = [await at.call() for _ in range(3)]

        assert at.harness.in_flight == 0
    assert [each.status for each in (first, *others)] == [200] * 4
    assert {each.header(b"x-paceline-account") for each in (first, *others)} == {b"key-b"}
    assert at.provider.keys == ["sk-b"] * 4


async def test_a_call_goes_past_an_account_whose_connection_times_out() -> None:
    with silent_port() as listening, contextlib.ExitStack() as clients:
        place = listening.getsockname()
        for _ in range(4):
            client = clients.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(place)
        async with with_dead_account(f"http://127.0.0.1:{place[1]}") as at:
            got = await at.call()

    assert (got.status, got.header(b"x-paceline-account")) == (200, b"key-b")


async def test_an_account_that_could_not_be_reached_is_tried_last_for_a_growing_time() -> None:
    async with with_dead_account("http://127.0.0.1:9") as at:
        tried: list[bool] = []
        for seconds in (0.0, 4.0, 2.0, 6.0, 6.0):
            await at.clock.advance(seconds)
            assert (await at.call()).status == 200
            tried.append(at.failures()[0].last_at == at.clock.now())
        (failure,) = at.failures()

    assert tried == [True, False, True, False, True]
    assert failure == MemberFailure(
        account="key-a",
        scope="anthropic/key-a",
        pools=("team",),
        kind="unreachable",
        detail=failure.detail,
        since=START,
        last_at=START + 18,
        calls=3,
        retry_at=START + 38,
    )
    assert failure.detail.startswith("no connection: ")


async def test_an_account_that_could_not_be_reached_is_not_tried_while_another_one_only_lacks_room() -> None:
    async with with_dead_account("http://127.0.0.1:9", limits={"anthropic/key-b": 1}) as at:
        assert (await at.call()).status == 200
        await at.clock.advance(1.0)
        slot = await at.limiter.acquire("anthropic/key-b")
        waiting = asyncio.create_task(at.call())
        await until(lambda: at.harness.gateway.calls.counts().waiting == 1)
        slot.release()
        await at.clock.advance(1.0)
        got = await waiting
        (failure,) = at.failures()

    assert (got.status, got.header(b"x-paceline-account")) == (200, b"key-b")
    assert (failure.calls, failure.last_at) == (1, START)


async def test_an_account_that_a_provider_refuses_again_and_again_is_reported_until_it_serves() -> None:
    async with team() as at:
        at.provider.answers["sk-a"] = RATE_LIMITED
        assert (await at.call()).status == 200
        first = at.failures()
        await at.clock.advance(60.0)
        while at.provider.keys.count("sk-a") == 1:
            assert (await at.call()).status == 200
        (again,) = at.failures()
        at.provider.answers.clear()
        await at.clock.advance(120.0)
        while at.provider.keys.count("sk-a") == 2:
            assert (await at.call()).status == 200

        assert at.failures() == []
    assert first == []
    assert (again.account, again.kind, again.detail, again.calls) == ("key-a", "refused", "status 429", 2)
    assert (again.since, again.last_at, again.retry_at) == (START, START + 60, None)


async def test_a_client_gets_a_502_if_no_account_can_be_reached() -> None:
    async with with_dead_account("http://127.0.0.1:9", accounts=("key-a",)) as at:
        got = await at.call()

        assert at.harness.in_flight == 0
    assert got.status == 502
    assert b"no connection: " in got.body


async def test_a_client_gets_the_refusal_of_the_account_that_answered() -> None:
    async with with_dead_account("http://127.0.0.1:9") as at:
        at.provider.answers["sk-b"] = UNAUTHORIZED
        got = await at.call()

    assert (got.status, at.provider.keys) == (401, ["sk-b"])


async def test_no_text_of_a_client_reaches_a_header_as_it_is() -> None:
    body = json.dumps({"model": "x\r\nx-made-up: 1\r\n\r\nHTTP/1.1 200 OK"}).encode()
    async with team(accounts=("key-a",), fallback=(FallbackRoute("key-c"),)) as at:
        at.provider.answers = {"sk-a": UNAUTHORIZED}
        got = await at.call(body=body)

    assert (got.status, got.header(b"x-made-up")) == (200, None)
    assert got.header(b"x-paceline-fallback") == b"key-c/x--x-made-up:-1----HTTP/1.1-200-OK"
