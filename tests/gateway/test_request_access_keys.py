"""Keys of clients at the gateway: what lets a request in, what a key allows, and how keys share the queue."""

import asyncio
import json
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

import anthropic
import msgspec
import openai
import pytest
from anthropic import AsyncAnthropic
from google import genai
from google.genai import types as genai_types
from openai import AsyncOpenAI
from tests.gateway.gateway_harness import KEY, PATIENCE_SECONDS, GatewayHarness, account, run_loop, until
from tests.gateway.raw_http import Message, RawUpstream, Wire, answering, connect, ok, post

from paceline import Limiter
from paceline.engine.commands import digest_of_key
from paceline.errors import StoreError
from paceline.gateway import BackgroundStore, ClientKeys
from paceline.gateway.client_response import LARGE_BYTES, members_of, parsed
from paceline.hosts.jobs import in_daemon_thread
from paceline.settings import KeyPoolSettings
from paceline.store import Balances, ClientKey, HashedKey, KeyBudget, SqliteStore, Store
from paceline.testing import FakeProvider, VirtualClock

pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

START = 1_800_000_000.0
TEAM = "pk-paceline-team-secret"
WORK, POOL = b"/gateway/work/v1/messages", b"/gateway/team/v1/messages"


class Keys:
    """A store of keys whose changes a gateway notices at once."""

    def __init__(self, *records: ClientKey) -> None:
        self.store = SqliteStore.in_memory()
        self.seconds = 0.0
        for record in records:
            self.add(record)
        self.known = ClientKeys(self.store.client_keys, now=self._later)

    def add(self, record: ClientKey) -> None:
        self.store.create_client_key(record, digest_of_key(text_of(record.name).encode()))

    def revoke(self, name: str) -> None:
        self.store.revoke_client_key(name, now=START)

    def _later(self) -> float:
        self.seconds += 1.0
        return self.seconds


def text_of(name: str) -> str:
    return f"pk-paceline-{name}-secret"


def harness_with(keys: Keys, upstream: str, **options: Any) -> GatewayHarness:
    return GatewayHarness(account(upstream), account(upstream, "gpt", "openai"), keys=keys.known, **options)


async def asked(keys: Keys, request: bytes) -> tuple[Message, list[Message]]:
    """Return the response to one request, and what the upstream saw."""
    seen: list[Message] = []
    async with (
        RawUpstream(answering(ok(), seen)) as upstream,
        harness_with(keys, upstream.url) as harness,
        await connect(harness.port) as client,
    ):
        client.send(request)
        got = await client.read_message()
        assert harness.in_flight == 0
    return got, seen


def waiting_calls(harness: GatewayHarness) -> int:
    return harness.gateway.calls.counts().waiting


def waiting(limiter: Limiter) -> int:
    return next((each.queued for each in limiter.statuses() if each.scope == "runs"), 0)


def error_of(message: Message) -> tuple[int, str]:
    return message.status, json.loads(message.body)["error"]["message"]


# -- what lets a request in ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [
        b"x-api-key: %b",
        b"Authorization: Bearer %b",
        b"x-goog-api-key: %b",
        b"api-key: %b",
        b"x-paceline-token: %b\r\nx-api-key: sk-own",
    ],
)
async def test_a_key_is_accepted_in_every_position_and_never_sent_upstream(key: bytes) -> None:
    got, (seen,) = await asked(Keys(ClientKey(name="team")), post(key=key % TEAM.encode()))

    assert got.status == 200
    assert TEAM.encode() not in repr(seen.headers).encode() + seen.first_line
    assert seen.all(b"x-api-key") == [b"sk-own" if b"sk-own" in key else KEY.encode()]


async def test_a_key_is_accepted_in_the_query() -> None:
    path = b"/gateway/work/v1/messages?key=" + TEAM.encode()

    got, (seen,) = await asked(Keys(ClientKey(name="team")), post(path=path, key=b""))

    assert (got.status, seen.first_line) == (200, b"POST /v1/messages HTTP/1.1")


async def test_a_key_that_was_made_a_moment_ago_is_accepted_and_an_unknown_one_is_not() -> None:
    keys = Keys()
    await keys.known.catch_up(0.5)
    unknown, _ = await asked(keys, post(key=b"x-api-key: " + TEAM.encode()))
    keys.add(ClientKey(name="team"))
    known, _ = await asked(keys, post(key=b"x-api-key: " + TEAM.encode()))

    assert (unknown.status, known.status) == (401, 200)


async def test_a_key_may_use_its_own_address_only() -> None:
    keys = Keys(ClientKey(name="team", pool="gpt"))
    got, seen = await asked(keys, post(key=b"x-api-key: " + TEAM.encode()))
    fits, _ = await asked(keys, post(key=b"x-api-key: " + TEAM.encode(), path=b"/gateway/gpt/v1/chat/completions"))

    assert error_of(got) == (403, "the key team may use /gateway/gpt/ only")
    assert (seen, fits.status) == ([], 200)


# -- models ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "claude-opus-4-6-20260105"}',
        b'{"model": "gpt-5-mini"}',
        b'{"model": "opus-4-6", "messages": "%b"}' % (b"x" * 300_000),
    ],
    ids=["dated", "pattern", "long"],
)
async def test_allowed_models_are_compared_by_their_canonical_names_and_by_patterns(body: bytes) -> None:
    keys = Keys(ClientKey(name="team", models=("opus-4-6", "gpt-5*")))

    got, _ = await asked(keys, post(body, key=b"x-api-key: " + TEAM.encode()))

    assert got.status == 200


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"model": "sonnet-4-5"}', "the key team does not allow the model 'sonnet-4-5'; it allows: opus-4-6"),
        (b"{}", "the key team does not allow a call without a model; it allows: opus-4-6"),
        (
            b'{"model": "opus-4-6", "max_tokens": 1, "model": "opus-4-7"}',
            "the key team does not allow the model 'opus-4-7'; it allows: opus-4-6",
        ),
    ],
)
async def test_a_model_that_is_not_allowed_is_refused_with_those_that_are(body: bytes, message: str) -> None:
    got, seen = await asked(
        Keys(ClientKey(name="team", models=("opus-4-6",))), post(body, key=b"x-api-key: " + TEAM.encode())
    )

    assert json.loads(got.body) == {"type": "error", "error": {"type": "permission_error", "message": message}}
    assert (got.status, seen, got.header(b"x-should-retry")) == (403, [], b"false")


async def sent_in_two(key: ClientKey, first: bytes, second: bytes) -> tuple[Message, list[Message]]:
    """Return the response to a body whose second part comes when the first was read, and what the upstream saw."""
    seen: list[Message] = []
    async with (
        RawUpstream(answering(ok(), seen)) as upstream,
        harness_with(Keys(key), upstream.url) as harness,
        await connect(harness.port) as client,
    ):
        whole = post(first + second, key=b"x-api-key: " + TEAM.encode(), path=b"/gateway/gpt/v1/chat/completions")
        client.send(whole.removesuffix(second))
        await until(lambda: any(each.record.model == "gpt-5-mini" for each in harness.gateway.live))
        client.send(second)
        return await client.read_message(), seen


@pytest.mark.parametrize(
    "member",
    [
        *(b'"x": NaN', b'"x": "\\ud800"', b'"x": "\xff"', b'"x": "a\tb"', b'"x": ' + b"[" * 3000 + b"]" * 3000),
        b'"x": ' + b"[" * 300_000,
    ],
    ids=["NaN", "half a pair", "no UTF-8", "a tab", "deep", "large"],
)
@pytest.mark.parametrize("rule", [{"models": ("gpt-5-mini",)}, {"budget": KeyBudget(5.0, "day")}])
async def test_a_body_that_cannot_be_read_to_its_end_is_refused_for_a_key_with_rules(
    member: bytes, rule: dict[str, Any]
) -> None:
    key = ClientKey(name="team", **rule)

    got, seen = await sent_in_two(key, b'{"model": "gpt-5-mini",', member + b', "model": "gpt-5-pro"}')

    status, message = error_of(got)
    assert (status, seen) == (400, [])
    assert "so the body must be a JSON object" in message


@pytest.mark.parametrize("rule", [{"models": ("gpt-5-mini",)}, {"budget": KeyBudget(5.0, "day")}])
@pytest.mark.parametrize("name", [b"model", b"Model"])
async def test_a_body_with_a_second_model_is_refused_for_a_key_with_models_or_a_budget(
    rule: dict[str, Any], name: bytes
) -> None:
    key = ClientKey(name="team", **rule)

    got, seen = await sent_in_two(key, b'{"model": "gpt-5-mini",', b'"%b": "gpt-5-pro"}' % name)

    message = "the body names two models, 'gpt-5-mini' and 'gpt-5-pro'; the key team allows one"
    assert (error_of(got), seen) == ((403, message), [])


@pytest.mark.parametrize(
    "member",
    [
        b'"models": ["gpt-5-mini", "gpt-5-pro"], "route": "fallback"',
        b'"fallbacks": ["gpt-5-pro"]',
        b'"fallbacks": [{"gpt-5-mini": ["gpt-5-pro"]}]',
        b'"fallbacks": [{"model": "gpt-5-pro", "temperature": 1}]',
        b'"route": ["gpt-5-pro"]',
        b'"route": "gpt-5-pro"',
        b'"tools": [{"type": "advisor", "model": "gpt-5-pro"}, {"name": "x", "input_schema": {"model": "no"}}]',
    ],
)
async def test_the_models_that_a_call_may_fall_back_to_must_be_allowed_too(member: bytes) -> None:
    keys = Keys(ClientKey(name="team", models=("gpt-5-mini",)))
    key = b"x-api-key: " + TEAM.encode()
    body, path = b'{"model": "gpt-5-mini", %b}', b"/gateway/gpt/v1/chat/completions"

    refused, seen = await asked(keys, post(body % member, key=key, path=path))
    fits, _ = await asked(keys, post(body % member.replace(b"gpt-5-pro", b"gpt-5-mini"), key=key, path=path))

    message = "the key team does not allow the model 'gpt-5-pro'; it allows: gpt-5-mini"
    assert (error_of(refused), seen, fits.status) == ((403, message), [], 200)


async def test_a_call_with_fallbacks_that_name_no_model_is_refused() -> None:
    keys = Keys(ClientKey(name="team", models=("opus-4-6",)))
    body = b'{"model": "opus-4-6", "fallbacks": [7]}'

    got, seen = await asked(keys, post(body, key=b"x-api-key: " + TEAM.encode()))

    message = "the key team has models, and the body has a fallback that is no name of a model"
    assert (error_of(got), seen) == ((403, message), [])


async def test_each_sdk_raises_its_own_error_for_a_model_that_is_not_allowed() -> None:
    keys = Keys(ClientKey(name="team", models=("haiku-4-5",)))
    async with (
        FakeProvider() as provider,
        GatewayHarness(
            account(provider.url, "claude"),
            account(provider.url, "gpt", "openai"),
            account(provider.url, "gem", "google"),
            keys=keys.known,
        ) as harness,
    ):
        url = f"{harness.url}/gateway"
        hello: Any = [{"role": "user", "content": "hi"}]
        async with (
            AsyncAnthropic(api_key=TEAM, base_url=f"{url}/claude") as claude,
            AsyncOpenAI(api_key=TEAM, base_url=f"{url}/gpt/v1") as gpt,
        ):
            answer = await claude.messages.create(model="claude-haiku-4-5", max_tokens=5, messages=hello)
            with pytest.raises(anthropic.PermissionDeniedError, match="it allows: haiku-4-5"):
                await claude.messages.create(model="claude-opus-4-6", max_tokens=5, messages=hello)
            with pytest.raises(openai.PermissionDeniedError, match="it allows: haiku-4-5"):
                await gpt.chat.completions.create(model="gpt-5", messages=hello)
        google = genai.Client(api_key=TEAM, http_options=genai_types.HttpOptions(base_url=f"{url}/gem"))
        with pytest.raises(genai.errors.ClientError, match=r"403 PERMISSION_DENIED.*it allows: haiku-4-5"):
            await google.aio.models.generate_content(model="gemini-2.5-pro", contents="hi")
        await google.aio.aclose()
        google.close()

        assert answer.content
        assert [record.status for record in provider.requests] == [200]


# -- paths -----------------------------------------------------------------------------------------


def other(method: bytes, path: bytes) -> bytes:
    """Return a request with the key of the team, and a body where the method has one."""
    body = b"" if method in (b"GET", b"DELETE") else b'{"model": "gpt-5"}'
    return b"%b %b HTTP/1.1\r\nHost: x\r\nx-api-key: %b\r\nContent-Length: %d\r\n\r\n%b" % (
        method, path, TEAM.encode(), len(body), body,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path"),
    [
        (b"GET", b"/gateway/gpt/v1/files/file-1/content"),
        (b"DELETE", b"/gateway/gpt/v1/files/file-1"),
        (b"POST", b"/gateway/gpt/v1/batches"),
        (b"GET", b"/gateway/gpt/v1/responses/resp_1"),
        (b"POST", b"/gateway/gpt/v1/responses/resp_1/cancel"),
        (b"POST", b"/gateway/gpt/v1/threads/t_1/messages"),
        (b"POST", b"/gateway/gpt/v1/fine_tuning/jobs"),
        (b"POST", b"/gateway/gpt/v1/realtime/client_secrets"),
        (b"POST", b"/gateway/gpt/v1/b%61tches"),
        (b"POST", b"/gateway/work/v1/messages/batches"),
        (b"GET", b"/gateway/work/v1/messages/batches/b_1/results"),
        (b"POST", b"/gateway/gpt/v1beta/models/gemini-3:batchGenerateContent"),
        (b"POST", b"/gateway/gpt/v1beta/models/gemini-3%3AbatchGenerateContent"),
        (b"GET", b"/gateway/gpt/v1beta/models/veo/operations/1"),
    ],
)
async def test_a_key_reaches_nothing_but_models_unless_it_was_made_for_all_paths(method: bytes, path: bytes) -> None:
    refused, seen = await asked(Keys(ClientKey(name="team", rpm=100, parallel=5)), other(method, path))
    passed, _ = await asked(Keys(ClientKey(name="team", all_paths=True)), other(method, path))

    status, message = error_of(refused)
    assert (status, seen, passed.status) == (403, [], 200)
    assert message.startswith("the key team may call models, list them and count tokens, and ")
    assert message.endswith(" is none of these; a key made with --all-paths may do it")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        (b"POST", b"/gateway/work/v1/messages"),
        (b"POST", b"/gateway/work/v1/messages/count_tokens"),
        (b"GET", b"/gateway/work/v1/models"),
        (b"GET", b"/gateway/gpt/v1/models/openai/gpt-5"),
        (b"POST", b"/gateway/gpt/v1/chat/completions"),
        (b"POST", b"/gateway/gpt/v1/responses"),
        (b"POST", b"/gateway/gpt/v1/embeddings"),
        (b"POST", b"/gateway/gpt/openai/deployments/gpt-5/chat/completions?api-version=1"),
        (b"POST", b"/gateway/gpt/v1beta/models/gpt-5:generateContent"),
        (b"POST", b"/gateway/gpt/v1beta/models/gpt-5:streamGenerateContent?alt=sse"),
        (b"POST", b"/gateway/gpt/v1beta/models/gpt-5:countTokens"),
        (b"POST", b"/gateway/gpt/api/chat"),
    ],
)
async def test_a_key_may_call_models_list_them_and_count_tokens(method: bytes, path: bytes) -> None:
    keys = Keys(ClientKey(name="team", models=("gpt-5",), budget=KeyBudget(5.0, "day")))

    assert (await asked(keys, other(method, path)))[0].status == 200


async def test_a_model_in_a_path_is_read_as_the_provider_reads_it() -> None:
    keys = Keys(ClientKey(name="team", models=("gpt-5-mini",)))

    got, seen = await asked(keys, other(b"POST", b"/gateway/gpt/v1beta/models/gpt-5%3agenerateContent"))

    assert (error_of(got)[1], seen) == ("the key team does not allow the model 'gpt-5'; it allows: gpt-5-mini", [])


# -- revoked ---------------------------------------------------------------------------------------


async def test_a_stream_of_a_revoked_key_finishes_and_the_next_call_is_refused() -> None:
    keys, rest = Keys(ClientKey(name="team")), asyncio.Event()

    async def handle(wire: Wire) -> None:
        await wire.read_message()
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst")
        await rest.wait()
        wire.send(b" last")

    async with RawUpstream(handle) as upstream, harness_with(keys, upstream.url) as harness:
        async with await connect(harness.port) as client:
            client.send(post(key=b"x-api-key: " + TEAM.encode()))
            await until(lambda: harness.in_flight == 1)
            keys.revoke("team")
            rest.set()
            whole = await client.read_message()
        async with await connect(harness.port) as client:
            client.send(post(key=b"x-api-key: " + TEAM.encode()))
            refused = await client.read_message()

    assert (whole.status, whole.body) == (200, b"first last")
    assert error_of(refused) == (401, "the key team was revoked; ask for a new one")


async def test_a_waiting_call_of_a_revoked_key_is_refused_when_its_turn_comes() -> None:
    keys, limiter, seen = Keys(ClientKey(name="team")), Limiter(limits={"anthropic": 1}), list[Message]()
    async with (
        RawUpstream(answering(ok(), seen)) as upstream,
        harness_with(keys, upstream.url, limiter=limiter) as harness,
        await connect(harness.port) as client,
    ):
        held = await limiter.acquire("anthropic")
        client.send(post(key=b"x-api-key: " + TEAM.encode()))
        await until(lambda: waiting(limiter) == 1)
        keys.revoke("team")
        held.release()
        got = await client.read_message()

        assert error_of(got) == (401, "the key team was revoked; ask for a new one")
        assert (seen, harness.in_flight) == ([], 0)


# -- budgets ---------------------------------------------------------------------------------------


class Spent(Balances):
    """A stand-in for what keys have spent."""

    def __init__(self, dollars: float) -> None:
        super().__init__()
        self.dollars = dollars

    def of_key(self, key: ClientKey, budget: KeyBudget, now: float) -> float:
        return self.dollars


async def test_a_call_beyond_the_budget_is_refused_with_the_time_it_continues_and_a_stream_finishes() -> None:
    clock = VirtualClock(START)  # 2027-01-15 08:00 UTC
    keys, spent, rest = Keys(ClientKey(name="team", budget=KeyBudget(50.0, "month"))), Spent(49.0), asyncio.Event()

    async def handle(wire: Wire) -> None:
        await wire.read_message()
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst")
        await rest.wait()
        wire.send(b" last")

    async with RawUpstream(handle) as upstream, harness_with(keys, upstream.url, clock=clock) as harness:
        harness.gateway.spend.settled = spent
        async with await connect(harness.port) as client:
            client.send(post(key=b"x-api-key: " + TEAM.encode()))
            await until(lambda: harness.in_flight == 1)
            spent.dollars = 51.5
            rest.set()
            whole = await client.read_message()
        async with await connect(harness.port) as client:
            client.send(post(key=b"x-api-key: " + TEAM.encode()))
            refused = await client.read_message()

    assert (whole.status, whole.body) == (200, b"first last")
    message = "the budget of the key team, $50/month, is reached ($51.50 spent); it continues at 2027-02-01 00:00 UTC"
    assert json.loads(refused.body) == {"type": "error", "error": {"type": "billing_error", "message": message}}
    assert (refused.status, refused.header(b"x-should-retry")) == (402, b"false")
    assert refused.header(b"retry-after") == b"%d" % (1_801_440_000 - START)


async def test_a_call_that_was_refused_can_be_explained_afterwards() -> None:
    clock = VirtualClock(START)
    keys = Keys(ClientKey(name="team", budget=KeyBudget(50.0, "month")))
    async with (
        RawUpstream(answering(ok(), [])) as upstream,
        harness_with(keys, upstream.url, clock=clock) as harness,
        await connect(harness.port) as client,
    ):
        harness.gateway.spend.settled = Spent(51.5)
        client.send(post(key=b"x-api-key: " + TEAM.encode()))
        got = await client.read_message()
        found = harness.gateway.calls.request((got.header(b"x-paceline-request-id") or b"").decode())

    assert found is not None
    assert (found.status, found.reason, found.detail) == (402, "budget_reached", error_of(got)[1])
    assert found.retry_at == 1_801_440_000.0


async def test_a_model_that_is_not_allowed_is_refused_before_a_budget_that_is_reached() -> None:
    keys = Keys(ClientKey(name="team", models=("gpt-5",), budget=KeyBudget(5.0, "day")))
    async with (
        RawUpstream(answering(ok(), [])) as upstream,
        harness_with(keys, upstream.url) as harness,
        await connect(harness.port) as client,
    ):
        harness.gateway.spend.settled = Spent(51.5)
        client.send(post(key=b"x-api-key: " + TEAM.encode()))

        assert (await client.read_message()).status == 403


async def test_an_sdk_does_not_repeat_a_call_beyond_the_budget() -> None:
    keys = Keys(ClientKey(name="team", budget=KeyBudget(5.0, "total")))
    async with FakeProvider() as provider, harness_with(keys, provider.url) as harness:
        harness.gateway.spend.settled = Spent(5.0)
        async with AsyncOpenAI(api_key=TEAM, base_url=f"{harness.url}/gateway/gpt/v1", max_retries=5) as gpt:
            with pytest.raises(openai.APIStatusError, match=r"\$5, is reached.*with another budget") as told:
                await gpt.chat.completions.create(model="gpt-5", messages=[{"role": "user", "content": "hi"}])
        assert (told.value.status_code, provider.requests) == (402, [])


# -- the queue -------------------------------------------------------------------------------------


class Bench:
    """An upstream whose calls end when the test says so, and clients that always have the next call ready."""

    def __init__(self, keys: Keys, limiter: Limiter, clock: VirtualClock) -> None:
        self.clock = clock
        self.keys = keys
        self.limiter = limiter
        self.open: deque[tuple[str, float, asyncio.Event]] = deque()
        self.seconds: Counter[str] = Counter()

    async def handle(self, wire: Wire) -> None:
        while True:
            request = await wire.read_message()
            done = asyncio.Event()
            who = (request.header(b"x-who") or b"").decode()
            self.open.append((who, self.clock.now(), done))
            await done.wait()
            wire.send(ok())

    async def client(self, port: int, name: str, who: str, *headers: bytes, path: bytes = WORK) -> None:
        async with await connect(port) as wire:
            while True:
                key = b"x-api-key: " + text_of(name).encode()
                wire.send(post(b'{"model": "opus-4-6"}', b"x-who: " + who.encode(), *headers, key=key, path=path))
                await wire.read_message()

    async def run(self, turns: int, places: int) -> None:
        """End the oldest call, a second after the one before, and wait until the next has its place."""
        for _ in range(turns):
            await until(lambda: len(self.open) == places)
            await run_loop(20)  # the clients send again
            await self.clock.advance(1.0)
            who, since, done = self.open.popleft()
            self.seconds[who] += round(self.clock.now() - since)
            done.set()


async def test_two_keys_share_slot_seconds_two_to_one_although_one_sends_ten_times_as_much() -> None:
    clock = VirtualClock(START)
    keys = Keys(ClientKey(name="a", weight=2.0), ClientKey(name="b", weight=1.0))
    limiter = Limiter(clock=clock, limits={"anthropic": 3})
    bench = Bench(keys, limiter, clock)
    async with (
        RawUpstream(bench.handle) as upstream,
        harness_with(keys, upstream.url, clock=clock, limiter=limiter) as harness,
        asyncio.TaskGroup() as tasks,
    ):
        clients = [tasks.create_task(bench.client(harness.port, "a", "a")) for _ in range(4)]
        clients += [tasks.create_task(bench.client(harness.port, "b", "b")) for _ in range(40)]
        await bench.run(150, places=3)
        for each in clients:
            each.cancel()

    assert bench.seconds["a"] / bench.seconds["b"] == pytest.approx(2.0, rel=0.04)


@pytest.mark.parametrize(("weight", "clients"), [(1.0, 12), (2.0, 36)])
async def test_keys_share_the_accounts_of_a_pool_by_weight_while_places_cool_down(weight: float, clients: int) -> None:
    clock = VirtualClock(START)
    keys = Keys(ClientKey(name="a", weight=weight), ClientKey(name="b"))
    limiter = Limiter(clock=clock, limits={"anthropic/one": 2, "anthropic/two": 2}, cooldown=0.35)
    bench = Bench(keys, limiter, clock)
    calls: Counter[str] = Counter()
    async with (
        RawUpstream(bench.handle) as upstream,
        GatewayHarness(
            account(upstream.url, "one"),
            account(upstream.url, "two"),
            pools={"team": KeyPoolSettings(name="team", accounts=("one", "two"))},
            keys=keys.known,
            clock=clock,
            limiter=limiter,
        ) as harness,
        asyncio.TaskGroup() as tasks,
    ):
        who = ["a"] * 12 + ["b"] * clients
        callers = [tasks.create_task(bench.client(harness.port, name, name, path=POOL)) for name in who]
        for _ in range(15):
            await until(lambda: len(bench.open) == 4 and waiting_calls(harness) == len(who) - 4)
            await clock.advance(0.08)
            for name, _, done in bench.open:
                calls[name] += 1
                done.set()
            bench.open.clear()
            await until(lambda: waiting_calls(harness) == len(who))
            await clock.advance(0.35)
        for each in callers:
            each.cancel()

    assert calls["a"] / weight == pytest.approx(calls["b"], abs=2), calls


async def test_a_withdrawn_header_is_not_sent_upstream() -> None:
    keys = Keys(ClientKey(name="team"))
    _, (seen,) = await asked(keys, post(b"{}", b"X-Gateway-Fairness-Id: ann@x", key=b"x-api-key: " + TEAM.encode()))

    assert seen.header(b"x-gateway-fairness-id") is None


async def test_a_priority_is_capped_by_the_key_and_orders_only_inside_it() -> None:
    clock = VirtualClock(START)
    keys = Keys(ClientKey(name="a", priority_max=5), ClientKey(name="b"))
    limiter, seen = Limiter(clock=clock, limits={"anthropic": 1}), list[Message]()
    calls = [("b", b"0"), ("b", b"900"), ("a", b"1"), ("a", b"900"), ("a", b"5")]
    async with (
        RawUpstream(answering(ok(), seen)) as upstream,
        harness_with(keys, upstream.url, clock=clock, limiter=limiter) as harness,
    ):
        held = await limiter.acquire("anthropic")
        wires = []
        for number, (name, priority) in enumerate(calls):
            wire = await connect(harness.port)
            who, key = b"x-who: %d" % number, b"x-api-key: " + text_of(name).encode()
            wire.send(post(b'{"model": "opus-4-6"}', who, b"x-paceline-priority: " + priority, key=key))
            wires.append(wire)
            await until(lambda: waiting(limiter) == len(wires))
        held.release()
        for wire in wires:
            assert (await wire.read_message()).status == 200
            wire.close()

    order = [int(each.header(b"x-who") or b"") for each in seen]
    assert [each for each in order if calls[each][0] == "a"] == [3, 4, 2]
    assert [each for each in order if calls[each][0] == "b"] == [0, 1]


async def test_the_limit_of_a_key_makes_only_its_own_calls_wait() -> None:
    clock = VirtualClock(START)
    keys = Keys(ClientKey(name="a", parallel=1), ClientKey(name="b"))
    limiter = Limiter(clock=clock, limits={"key:a": 1})
    bench = Bench(keys, limiter, clock)
    async with (
        RawUpstream(bench.handle) as upstream,
        harness_with(keys, upstream.url, clock=clock, limiter=limiter) as harness,
        asyncio.TaskGroup() as tasks,
    ):
        clients = [tasks.create_task(bench.client(harness.port, name, name)) for name in ("a", "a", "a", "b", "b")]
        await until(lambda: len(bench.open) == 3)
        await run_loop(50)

        assert sorted(who for who, _, _ in bench.open) == ["a", "b", "b"]
        assert [(each.scope, each.in_flight, each.queued) for each in limiter.statuses() if ":" in each.scope] == [
            ("key:a", 1, 2),
            ("key:b", 2, 0),
        ]
        for each in clients:
            each.cancel()


async def test_a_revoked_key_is_still_known_by_name() -> None:
    keys = Keys(ClientKey(name="team"))
    await keys.known.catch_up(0.5)
    assert keys.known.find(TEAM.encode()) == ClientKey(name="team")
    keys.revoke("team")
    await keys.known.catch_up(0.5)
    found = keys.known.find(TEAM.encode())
    assert found == msgspec.structs.replace(ClientKey(name="team"), revoked_at=START)
    assert keys.known.find(b"sk-something") is None


# -- a store that fails or hangs -------------------------------------------------------------------


async def test_a_store_that_fails_is_not_asked_again_for_every_request() -> None:
    clock, asked_at = [0.0], list[float]()

    def fail() -> list[HashedKey]:
        asked_at.append(clock[0])
        raise StoreError("the store does not answer")

    known = ClientKeys(fail, now=lambda: clock[0])
    for _ in range(10):
        await known.catch_up(0.5)
        clock[0] += 0.6

    assert asked_at == [0.0, pytest.approx(5.4)]


class HangingKeys:
    """Keys whose store stops answering when the test says so."""

    def __init__(self, *keys: HashedKey) -> None:
        self.keys = keys
        self.hangs = False
        self.asked = 0
        self.wakes = threading.Event()

    def read(self) -> Sequence[HashedKey]:
        keys = self.keys
        self.asked += 1
        if self.hangs:
            self.wakes.wait(PATIENCE_SECONDS)
        return keys


async def test_a_store_that_hangs_stops_neither_streams_nor_calls_with_known_keys() -> None:
    clock = [0.0]
    hanging = HangingKeys(HashedKey(ClientKey(name="team"), digest_of_key(TEAM.encode())))
    known, seen = ClientKeys(hanging.read, now=lambda: clock[0]), list[Message]()
    async with (
        RawUpstream(answering(ok(), seen)) as upstream,
        GatewayHarness(account(upstream.url), keys=known) as harness,
        await connect(harness.port) as with_key,
        await connect(harness.port) as with_token,
        await connect(harness.port) as with_unknown_key,
    ):
        with_key.send(post(key=b"x-api-key: " + TEAM.encode()))
        assert (await with_key.read_message()).status == 200
        hanging.hangs, clock[0] = True, 60.0
        with_key.send(post(key=b"x-api-key: " + TEAM.encode()))
        await until(lambda: hanging.asked == 2)
        with_token.send(post())
        during = await with_token.read_message()
        waits = len(seen)
        after = await with_key.read_message()
        with_unknown_key.send(post(key=b"x-api-key: pk-paceline-new"))
        unknown = await with_unknown_key.read_message()
        hanging.wakes.set()

    assert (during.status, waits, after.status, hanging.asked) == (200, 2, 200, 2)
    assert error_of(unknown) == (503, "this key is not known, and the keys cannot be read now; try again")
    assert unknown.header(b"retry-after") == b"5"


async def test_a_key_that_was_made_while_the_keys_were_being_read_is_found() -> None:
    hanging = HangingKeys()
    hanging.hangs = True
    known = ClientKeys(hanging.read)
    first = asyncio.create_task(known.catch_up(0.5))
    await until(lambda: hanging.asked == 1)
    hanging.keys = (HashedKey(ClientKey(name="team"), digest_of_key(TEAM.encode())),)
    second = asyncio.create_task(known.catch_up(0.0))
    await run_loop(5)
    hanging.wakes.set()
    await asyncio.gather(first, second)

    assert known.find(TEAM.encode()) == ClientKey(name="team")


# -- Reading a store in threads: opened once, by the first reading, and never waited for foreve --


def test_a_store_is_opened_by_the_first_reading_and_again_after_a_failure() -> None:
    store, opened = SqliteStore.in_memory(), list[bool]()
    store.create_client_key(ClientKey(name="team"), "d1")

    def open_store() -> Store:
        opened.append(len(opened) > 0)
        if not opened[-1]:
            raise StoreError("the server is not there")
        return store

    background = BackgroundStore(open_store)
    before = len(opened)
    with pytest.raises(StoreError, match="not there"):
        background.client_keys()

    assert background.client_keys() == [HashedKey(ClientKey(name="team"), "d1")]
    assert (before, opened) == (0, [False, True])
    background.close()


async def test_a_reading_does_not_keep_the_process_alive() -> None:
    assert await in_daemon_thread(lambda: threading.current_thread().daemon, "a reading")


async def test_an_error_of_a_reading_is_raised_where_it_was_asked_for() -> None:
    def fail() -> None:
        raise StoreError("damaged")

    with pytest.raises(StoreError, match="damaged"):
        await in_daemon_thread(fail, "a reading")


# -- Where bodies are parsed --


async def test_a_large_body_is_parsed_off_the_loop() -> None:
    threads = [await parsed(size, threading.current_thread) for size in (LARGE_BYTES, LARGE_BYTES + 1)]

    assert [thread is threading.current_thread() for thread in threads] == [True, False]


async def test_a_large_body_that_rules_read_is_decoded_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def noted(decode: Callable[..., Any]) -> Callable[..., Any]:
        def decoded(value: bytes | msgspec.Raw, **options: Any) -> Any:
            if len(bytes(value)) > LARGE_BYTES:
                threads.append(threading.current_thread())
            return decode(value, **options)

        return decoded

    monkeypatch.setattr("paceline.gateway.client_response.members_of", noted(members_of))
    monkeypatch.setattr(msgspec.json, "decode", noted(msgspec.json.decode))
    body = b'{"model": "opus-4-6", "tools": [%b]}' % b",".join([b"{}"] * 100_000)

    got, seen = await asked(
        Keys(ClientKey(name="team", models=("opus-4-6",))), post(body, key=b"x-api-key: " + TEAM.encode())
    )

    assert (got.status, len(seen)) == (200, 1)
    assert [each is threading.current_thread() for each in threads] == [False, False]  # its members, then its tools
