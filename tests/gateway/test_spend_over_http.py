"""What calls cost, however they end: clients that leave, stalls, shutdowns, clock steps, and many at once."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from tests.gateway.gateway_harness import QUICK_TIMEOUTS, GatewayHarness, account, until
from tests.gateway.raw_http import RawUpstream, Wire, connect, ok, post
from tests.gateway.test_request_access_keys import Keys, text_of

from paceline import Limiter
from paceline.agents.account import Account
from paceline.core.values.session_output import Tokens
from paceline.errors import StoreUnreachable
from paceline.gateway.client_response import RequestBody
from paceline.gateway.request_accounting import RequestAccounting
from paceline.gateway.routes import BudgetError, CallRecord
from paceline.gateway.spend_ledger import ANSWER_TOKENS, Estimate, SpendLedger, limit_of_key
from paceline.gateway.upstream_call import UpstreamCall
from paceline.gateway.upstream_pool import ResponseHead
from paceline.metrics import MetricsRegistry
from paceline.protocols.usage import BodyReader, EventReader
from paceline.settings import KeyPoolSettings
from paceline.settings.model import Price, price_list
from paceline.store import BatchId, ClientKey, KeyBudget, SpendRow, SqliteStore
from paceline.store.spend import day_of
from paceline.testing import VirtualClock

START = 1_800_000_000.0
WORDS = "words"
"""A model of which 1,000 tokens cost a dollar."""
PRICES = price_list({"m": Price(input=10.0, output=10.0), WORDS: Price(input=0.0, output=1000.0)})
CENT = 1000
"""Tokens that cost a cent."""
PATHS = {"key": b"/gateway/work/v1/messages", "account": b"/gateway/capped/v1/messages"}


def answer(cents: float) -> bytes:
    usage = {"input_tokens": round(cents * CENT), "output_tokens": 0}
    return ok(json.dumps({"usage": usage}).encode())


class Upstream:
    """An upstream that answers when it is let, and counts what it has seen and at most seen at once."""

    def __init__(self, cents: float = 3.0) -> None:
        self.cents = cents
        self.seen = self.running = self.most = 0
        self.reply: bytes | None = None
        """The answer, None: one that costs so many cents."""
        self.sends: int | None = None
        """How many bytes of each answer, None for all."""
        self.goes_on = asyncio.Event()

    async def handle(self, wire: Wire) -> None:
        while True:
            await wire.read_message()
            self.seen += 1
            self.running += 1
            self.most = max(self.most, self.running)
            await self.goes_on.wait()
            self.running -= 1
            wire.send((self.reply or answer(self.cents))[: self.sends])


class Priced:
    """A gateway with a key `team` and an account `capped` that may both spend so much a day."""

    def __init__(self, upstream: Upstream, harness: GatewayHarness, clock: VirtualClock, keys: Keys) -> None:
        self.upstream = upstream
        self.harness = harness
        self.spend = harness.gateway.spend
        self.clock = clock
        self.keys = keys

    def request(self, of: str = "key", *, cents: float = 3.0, more: str = "", key: str = "team") -> bytes:
        body = f'{{"model": "m", "max_tokens": {round(cents * CENT)}{more}}}'.encode()
        return post(body, path=PATHS[of], key=b"x-api-key: " + (text_of(key).encode() if of == "key" else b"t" * 20))

    async def call(self, of: str = "key", **fields: object) -> int:
        async with await connect(self.harness.port) as client:
            client.send(self.request(of, **fields))  # type: ignore[arg-type]
            return (await client.read_message()).status

    def spent(self) -> float:
        return round(self.spend.today().dollars, 6)


@asynccontextmanager
async def priced(
    dollars: float = 0.30, store: SqliteStore | None = None, provider: str = "anthropic", **limits: int
) -> AsyncIterator[Priced]:
    clock, upstream = VirtualClock(START), Upstream()
    keys = Keys(ClientKey(name="team", budget=KeyBudget(dollars, "day"), created_at=START - 1.0))
    async with RawUpstream(upstream.handle) as server:
        harness = GatewayHarness(
            account(server.url, provider=provider),
            account(server.url, "capped", provider=provider, daily_budget=dollars),
            limiter=Limiter(clock=clock, slot_timeout=3600.0, limits=limits),
            clock=clock,
            keys=keys.known,
            spend=SpendLedger(PRICES, clock),
            is_token=lambda given: given == b"t" * 20,
            pools={"team": KeyPoolSettings(name="team", accounts=("work", "capped"))},
        )
        async with harness:
            if store is not None:
                harness.gateway.spend.use_store(store)
            yield Priced(upstream, harness, clock, keys)


@pytest.mark.parametrize("of", PATHS)
async def test_many_calls_at_once_spend_no_more_than_the_budget(of: str) -> None:
    async with priced() as at:
        calls = [asyncio.ensure_future(at.call(of)) for _ in range(40)]
        await until(lambda: at.upstream.running == 9)  # each reserves 3 cents and its few bytes
        at.upstream.goes_on.set()
        statuses = await asyncio.gather(*calls)

    assert at.upstream.most == 9
    assert (statuses.count(200), statuses.count(402), at.upstream.seen, at.spent()) == (10, 30, 10, 0.3)


async def test_a_call_that_finds_no_room_in_its_time_is_told_to_come_again() -> None:
    async with priced(0.03) as at:
        first = asyncio.ensure_future(at.call())
        await until(lambda: at.upstream.running == 1)
        async with await connect(at.harness.port) as client:
            client.send(at.request().replace(b"\r\n\r\n", b"\r\nx-paceline-max-wait: 5\r\n\r\n", 1))
            await until(lambda: any(each.reason for each in at.harness.gateway.calls.requests(0).running))
            await at.clock.advance(5.0)
            refused = await client.read_message()
        at.upstream.goes_on.set()

        assert (refused.status, refused.header(b"retry-after"), await first) == (429, b"1", 200)
        assert b"has no room beside the calls that run" in refused.body


@pytest.mark.parametrize(("more", "cents"), [("", 3.0), (', "stream": true', 0.0)])
async def test_a_call_that_its_client_leaves_before_the_answer_begins_costs_its_estimate(
    more: str, cents: float
) -> None:
    async with priced() as at:
        request = at.request(more=more)
        prompt = int(request.split(b"\r\n\r\n", 1)[0].split(b"Content-Length: ")[1].split(b"\r\n")[0]) // 4
        client = await connect(at.harness.port)
        client.send(request)
        await until(lambda: at.upstream.running == 1)
        client.reset()
        await until(lambda: not at.harness.gateway.live)
        (row,) = at.spend.unsaved()
        (left,) = at.harness.gateway.calls.requests(1).recent

    assert (row.requests, row.tokens, row.estimated) == (1, Tokens(input=prompt, output=round(cents * CENT)), 1)
    assert left.tokens == row.tokens


async def test_a_call_that_its_client_leaves_before_its_usage_has_come_costs_its_estimate() -> None:
    """The provider has written all of an answer that is no stream, and bills it."""
    async with priced() as at, await connect(at.harness.port) as client:
        at.upstream.sends = -10
        at.upstream.goes_on.set()
        client.send(at.request())
        await client.read_head()
        client.reset()
        await until(lambda: not at.harness.gateway.live)
        (row,) = at.spend.unsaved()

    assert (row.requests, row.tokens.output, row.estimated) == (1, 3 * CENT, 1)


async def test_an_answer_in_one_piece_costs_its_estimate_also_if_a_stream_was_asked_for() -> None:
    async with priced() as at, await connect(at.harness.port) as client:
        at.upstream.sends = -10
        at.upstream.goes_on.set()
        client.send(at.request(more=', "stream": true'))
        await client.read_head()
        client.reset()
        await until(lambda: not at.harness.gateway.live)
        (row,) = at.spend.unsaved()

    assert (row.requests, row.tokens.output, row.estimated) == (1, 3 * CENT, 1)


async def test_a_call_with_an_advisor_costs_all_its_parts_at_the_price_of_the_dearest_model() -> None:
    parts = [{"type": "message", "output_tokens": 20}, {"type": "advisor_message", "model": WORDS, "output_tokens": 80}]
    said = {"model": "m", "usage": {"input_tokens": 0, "output_tokens": 20, "iterations": parts}}
    async with priced(10.0) as at:
        at.upstream.reply = ok(json.dumps(said).encode())
        at.upstream.goes_on.set()

        assert await at.call(more=f', "tools": [{{"type": "advisor", "model": "{WORDS}"}}]') == 200
        assert at.spent() == 0.1


@pytest.mark.parametrize(("served", "dollars"), [("m", 0.001), (WORDS, 0.1), ("another-one", 0.1)])
@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_call_that_another_model_may_serve_costs_what_that_one_costs(
    served: str, dollars: float, *, is_stream: bool
) -> None:
    said = json.dumps({"model": served, "usage": {"input_tokens": 0, "output_tokens": 100}}).encode()
    async with priced(10.0) as at:
        at.upstream.reply = ok(b"data: %b\n\n" % said, b"Content-Type: text/event-stream") if is_stream else ok(said)
        calling = asyncio.ensure_future(at.call(more=f', "models": ["{WORDS}"]'))
        await until(lambda: at.upstream.running == 1)
        (reserved,) = [each.row.dollars for each in at.spend._open]
        at.upstream.goes_on.set()

        assert (await calling, reserved, at.spent()) == (200, 3.0, dollars)


DEAR = {"service_tier": "priority", "usage": {"prompt_tokens": 100, "completion_tokens": 0}}


@pytest.mark.parametrize(
    ("asked", "said", "reserved", "dollars"),
    [
        (', "service_tier": "priority"', DEAR, 0.0753, 0.0025),
        ("", DEAR, 0.0302, 0.0025),  # a project may ask for it
        (', "service_tier": "priority"', DEAR | {"service_tier": "default"}, 0.0753, 0.001),
        (', "service_tier": "priority"', {"usage": DEAR["usage"]}, 0.0753, 0.0025),
        (', "speed": "fast"', {"usage": {"input_tokens": 100}}, 0.1807, 0.006),
        ("", {"usage": {"input_tokens": 0, "cache_creation_input_tokens": 100,
                        "cache_creation": {"ephemeral_1h_input_tokens": 100}}}, 0.0302, 0.002),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_call_costs_what_its_tier_costs_as_asked_and_as_served(
    asked: str, said: dict[str, object], reserved: float, dollars: float, *, is_stream: bool
) -> None:
    text = json.dumps(said).encode()
    async with priced(10.0) as at:
        at.upstream.reply = ok(b"data: %b\n\n" % text, b"Content-Type: text/event-stream") if is_stream else ok(text)
        calling = asyncio.ensure_future(at.call(more=asked))
        await until(lambda: at.upstream.running == 1)
        (held,) = [each.row.dollars for each in at.spend._open]
        at.upstream.goes_on.set()

        assert (await calling, at.spent()) == (200, dollars)
        assert held == pytest.approx(reserved, abs=0.0005)


async def test_only_the_path_of_gemini_asks_for_a_stream() -> None:
    async with priced(provider="google") as at, await connect(at.harness.port) as client:
        body = b'{"generationConfig": {"maxOutputTokens": 3000}}'
        path = b"/gateway/work/v1beta/models/m:generateContent?streamGenerateContent"
        client.send(post(body, path=path, key=b"x-goog-api-key: " + text_of("team").encode()))
        await until(lambda: at.upstream.running == 1)
        client.reset()
        await until(lambda: not at.harness.gateway.live)
        (row,) = at.spend.unsaved()

    assert row.tokens == Tokens(input=len(body) // 4, output=3000)


async def test_a_body_whose_model_is_in_its_path_is_read_for_its_longest_answer() -> None:
    async with priced(provider="google") as at, await connect(at.harness.port) as client:
        body = b'{"contents": [%b0], "generationConfig": {"maxOutputTokens": 12000}}' % (b"0," * 100_000)
        request = post(b"", path=b"/gateway/work/v1beta/models/m:generateContent", key=b"x-goog-api-key: k")
        head = request.replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        client.send(head.replace(b": k\r\n", b": %b\r\n" % text_of("team").encode()))
        await until(lambda: any(each.record.model == "m" for each in at.harness.gateway.live))
        client.send(b"%x\r\n%b" % (len(body), body[:1000]))
        await until(lambda: any(each.request_body.size for each in at.harness.gateway.live))
        client.send(body[1000:] + b"\r\n0\r\n\r\n")
        await until(lambda: at.upstream.running == 1)
        reserved = [each.row.tokens for each in at.spend._open]
        at.upstream.goes_on.set()
        await client.read_message()

    assert reserved == [Tokens(input=len(body) // 4, output=12_000)]


async def test_the_longest_answer_is_reserved_also_if_it_is_named_at_the_end_of_a_large_body() -> None:
    async with priced() as at, await connect(at.harness.port) as client:
        body = b'{"model": "m", "messages": [%b0], "max_tokens": 12000}' % (b"0," * 100_000)
        request = post(body, path=PATHS["key"], key=b"x-api-key: " + text_of("team").encode())
        client.send(request[:1000])
        await until(lambda: any(each.record.model == "m" for each in at.harness.gateway.live))
        client.send(request[1000:])
        await until(lambda: at.upstream.running == 1)
        reserved = [each.row.tokens for each in at.spend._open]
        at.upstream.goes_on.set()
        await client.read_message()

    assert reserved == [Tokens(input=len(body) // 4, output=12_000)]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ('"max_tokens": 1000, "n": 10', 10_000),
        ('"n": 2', 2 * ANSWER_TOKENS),
        ('"max_tokens": null, "max_completion_tokens": 5000', 5_000),
    ],
)
async def test_all_answers_that_a_call_asks_for_are_reserved(limits: str, expected: int) -> None:
    async with priced() as at, await connect(at.harness.port) as client:
        body = f'{{"model": "m", {limits}}}'.encode()
        client.send(post(body, path=PATHS["key"], key=b"x-api-key: " + text_of("team").encode()))
        await until(lambda: at.upstream.running == 1)
        reserved = [each.row.tokens.output for each in at.spend._open]
        at.upstream.goes_on.set()
        await client.read_message()

    assert reserved == [expected]


async def test_a_client_that_leaves_while_it_sends_its_request_has_spent_nothing() -> None:
    async with priced() as at:
        client = await connect(at.harness.port)
        client.send(post(b'{"model": "m", ', path=PATHS["key"], key=b"x-api-key: " + b"t" * 20)[:-3])
        await until(lambda: len(at.harness.gateway.live) == 1)
        client.reset()
        await until(lambda: not at.harness.gateway.live)

        assert at.spend.unsaved() == []


async def test_a_shutdown_counts_the_calls_that_it_cuts_off() -> None:
    store = SqliteStore.in_memory()
    async with priced(store=store) as at:
        client = await connect(at.harness.port)
        client.send(at.request())
        await until(lambda: at.upstream.running == 1)
        await at.harness.gateway.close()
        client.close()

        assert [(each.requests, each.estimated, each.tokens.output) for each in store.spend()] == [(1, 1, 3 * CENT)]


async def test_costs_are_stored_again_after_an_error_that_nobody_expects(monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[float] = []

    def save(now: float) -> None:
        times.append(now)
        if len(times) == 1:
            raise RuntimeError("unexpected")

    async with GatewayHarness(account("http://127.0.0.1:9"), timeouts=QUICK_TIMEOUTS) as harness:
        monkeypatch.setattr(harness.gateway.spend, "save_if_due", save)
        await until(lambda: len(times) == 2)


@pytest.mark.parametrize(("reason", "status"), [("revoked", 401), ("spent", 402)])
async def test_a_call_that_waited_for_several_accounts_of_a_pool_is_checked_when_it_is_let_in(
    reason: str, status: int
) -> None:
    async with priced(anthropic=1) as at:
        slot = await at.harness.limiter.acquire("anthropic/other/m")
        clients = [await connect(at.harness.port) for _ in range(2)]
        for client, body in zip(clients, (b'{"model": "m"}', b'{"model": "m", "max_tokens": 1}'), strict=True):
            key = b"x-api-key: " + text_of("team").encode()
            client.send(post(body, path=b"/gateway/team/v1/messages", key=key))
        await until(lambda: at.harness.gateway.calls.counts().waiting == 2)
        for _ in range(3):
            await at.clock.advance(1.5)  # each look at the accounts is a wait of its own
        if reason == "revoked":
            at.keys.revoke("team")
        else:
            (known,) = at.keys.store.client_keys()
            spent = CallRecord(id="r", began_at=START, model="m", tokens=_tokens(0.30))
            at.spend.settle(at.spend.reserve(spent, known.key, account("http://127.0.0.1:9"), Estimate()), spent)
        slot.release()
        await at.clock.advance(1.5)
        answers = [await client.read_message() for client in clients]
        for client in clients:
            client.close()

        assert ([each.status for each in answers], at.upstream.seen) == ([status] * 2, 0)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            b'{"model": "m", "model": "dear"}',
            "the model 'dear' has no price, and the account capped has a budget",
        ),
        (b'{"model": "m", "models": ["free"]}', "the model 'free' has no price, and the account capped has a budget"),
        (b'{"model": "m", "background": true}', "the account capped has a budget, so `background` must be false"),
    ],
)
async def test_an_account_with_a_budget_serves_no_call_that_it_cannot_price(body: bytes, message: str) -> None:
    async with priced() as at, await connect(at.harness.port) as client:
        client.send(post(body, path=PATHS["account"], key=b"x-api-key: " + b"t" * 20))
        refused = await client.read_message()

    assert (refused.status, at.upstream.seen) == (403, 0)
    assert message in json.loads(refused.body)["error"]["message"]


async def test_an_account_with_a_budget_serves_no_body_whose_second_model_comes_after_the_first_was_priced() -> None:
    second = b'"model": "dear"}'
    whole = post(b'{"model": "m",' + second, path=PATHS["account"], key=b"x-api-key: " + b"t" * 20)
    async with priced() as at, await connect(at.harness.port) as client:
        client.send(whole.removesuffix(second))
        await until(lambda: any(each.record.model == "m" for each in at.harness.gateway.live))
        client.send(second)
        refused = await client.read_message()

    message = "the body names two models, 'm' and 'dear'; the account capped allows one"
    assert (refused.status, at.upstream.seen) == (403, 0)
    assert json.loads(refused.body)["error"]["message"] == message


class Stalling(SqliteStore):
    """A store whose writings end in time-outs at random: before or after they are written."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(":memory:")
        self.chance: random.Random | None = chance

    def add_spend(self, rows: Sequence[SpendRow], batch: BatchId | None = None) -> None:
        fate = "written" if self.chance is None else self.chance.choice(["written", "not written", "no answer"])
        if fate != "not written":
            super().add_spend(rows, batch)
        if fate != "written":
            raise StoreUnreachable("gone")


class Running:
    """A call, with what it may cost and what it costs in fact, in dollars. Events of streams have so many tokens."""

    def __init__(self, key: ClientKey, estimate: float, *, real: float, now: float, event_tokens: int) -> None:
        self.reserved = estimate
        self.place = (key.created_at, day_of(now))
        self.beyond = 0.0
        """The part of its estimate that had no room when it was let in."""
        self._real = real
        self._key = key
        self._event_tokens = event_tokens
        self._record = CallRecord(id="r", began_at=now, model=WORDS if event_tokens else "m")

    def is_admitted(self, ledger: SpendLedger, work: Account) -> bool:
        is_stream = bool(self._event_tokens)
        tokens = Tokens(output=round(self.reserved * 1000)) if is_stream else _tokens(self.reserved)
        limit = limit_of_key(self._key)
        assert limit is not None
        self.beyond = max(
            0.0, ledger._spent(ledger.settled, limit, ledger._clock.now()) + self.reserved - limit.budget.dollars
        )
        try:
            self._entry = ledger.reserve(self._record, self._key, work, Estimate(tokens, is_stream))
        except BudgetError:
            return False
        return True

    def end(self, calls: RequestAccounting, ending: str) -> float:
        """End it as often as it may be ended, and return what the upstream bills."""
        body = RequestBody(None)  # type: ignore[arg-type]
        call = UpstreamCall(None, body, None, b"", print)  # type: ignore[arg-type]
        call.head, call.sent_at, body.is_complete = ResponseHead(200, b"OK", [], []), 1.0, True
        cost = {"end": self._real, "leave": self.reserved, "fail": 0.0}[ending]
        if self._event_tokens:
            size, events = self._event_tokens, int(self._real * 1000) // self._event_tokens
            come = events if ending == "end" else events // 2
            cost = come * size / 1000 if ending != "fail" else 0.0
            delta = b'data: {"delta": {"text": "%b"}}\n' % (size * b"word")
            usage = b'data: {"usage": {"input_tokens": 0, "output_tokens": %d}}\n' % (events * size)
            call.reader = EventReader()
            call.reader.feed(come * delta + (usage if ending == "end" else b""))
        elif ending == "end":
            call.reader = BodyReader()
            call.reader.feed(b'{"usage": {"input_tokens": %d, "output_tokens": 0}}' % _tokens(cost).input)
        if ending == "end":
            call.over.set_result(None)
        for _ in range(2):
            calls.used(self._record, None if ending == "fail" else call, body, self._entry)
        return cost


def _tokens(dollars: float) -> Tokens:
    return Tokens(input=round(dollars * 100 * CENT))


@pytest.mark.parametrize("seed", range(12))
async def test_sums_are_those_of_the_upstream_whatever_happens(seed: int) -> None:
    """Random calls, hang-ups, stalls, restarts, clock steps and keys that are made again, against an outside sum.

    Half of the calls are streams with several tokens in each event.
    """
    chance = random.Random(seed)
    clock, store, day = VirtualClock(START), Stalling(chance), 86_400.0
    keys = [ClientKey(name="team", budget=KeyBudget(5.0, "day"), created_at=START)]
    calls = RequestAccounting(clock, SpendLedger(PRICES, clock), MetricsRegistry())
    calls.spend.use_store(store)
    work = account("http://127.0.0.1:9", daily_budget=50.0)
    running: list[Running] = []
    billed: dict[tuple[float, str], float] = {}
    errors: dict[tuple[float, str], float] = {}
    beyond: dict[tuple[float, str], float] = {}

    for _ in range(600):
        key, estimate, event_tokens = keys[-1], chance.choice([0.05, 0.3, 1.0]), chance.choice([0, 0, 2, 5, 30])
        match chance.choice(["begin"] * 5 + ["end"] * 4 + ["leave", "fail", "save", "save", "step", "crash", "key"]):
            case "begin":
                real = estimate * chance.choice([0.0, 0.5, 1.0, 2.0])
                call = Running(key, estimate, real=real, now=clock.now(), event_tokens=event_tokens)
                if call.is_admitted(calls.spend, work):
                    beyond[call.place] = max(call.beyond, beyond.get(call.place, 0.0))
                    running.append(call)
            case "end" | "leave" | "fail" as ending if running:
                call = running.pop(chance.randrange(len(running)))
                cost = call.end(calls, ending)
                billed[call.place] = billed.get(call.place, 0.0) + cost
                errors[call.place] = errors.get(call.place, 0.0) + max(0.0, cost - call.reserved)
            case "save":
                calls.spend.save()
            case "step":
                clock.step(chance.choice([-40, -1, 1, 40, 400]) * day)
            case "crash" if calls.spend.save():  # what the last second has brought is stored
                for call in running:
                    billed[call.place] = billed.get(call.place, 0.0) + call.reserved
                running, calls = [], RequestAccounting(clock, SpendLedger(PRICES, clock), MetricsRegistry())
                calls.spend.use_store(store)
            case "key":
                keys.append(ClientKey(name="team", budget=KeyBudget(5.0, "day"), created_at=START + len(keys)))
    for call in running:
        billed[call.place] = billed.get(call.place, 0.0) + call.end(calls, "end")
    store.chance = None
    assert calls.spend.save()

    stored: dict[tuple[float, str], float] = {}
    for row in store.spend():
        stored[row.key_created_at, row.day] = stored.get((row.key_created_at, row.day), 0.0) + row.dollars
    assert {place: spent for place, spent in stored.items() if spent > 1e-9} == pytest.approx(
        {place: spent for place, spent in billed.items() if spent > 1e-9}
    )
    for place, spent in billed.items():
        assert spent <= 5.0 + errors.get(place, 0.0) + beyond[place] + 1e-9, place
