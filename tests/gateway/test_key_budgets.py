"""Budgets of keys: announced once at 80 % and at their end, and over in their next period."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.gateway_harness import GatewayHarness, account
from tests.gateway.raw_http import Message, RawUpstream, answering, connect, ok, post
from tests.gateway.test_request_access_keys import TEAM, Keys

from paceline.core.values.session_output import Tokens
from paceline.engine.commands import KeyRequest, create_key, revoke_key
from paceline.events import Event
from paceline.gateway.routes import CallRecord
from paceline.gateway.spend_ledger import Estimate, SpendLedger, limit_of_key
from paceline.protocols import OwnError
from paceline.settings import Settings
from paceline.settings.model import Price, price_list
from paceline.store import ClientKey, KeyBudget, SqliteStore
from paceline.store.spend import BudgetPeriod
from paceline.testing import VirtualClock

START = 1_800_000_000.0  # 2027-01-15 08:00 UTC
DAY = 86_400.0
SETTINGS = Settings(home=Path("home"), store_url="sqlite://")


def ledger_of(clock: VirtualClock, store: SqliteStore | None = None) -> tuple[SpendLedger, list[Event]]:
    """A ledger, and the events that it emits. A million tokens cost a dollar."""
    ledger, events = SpendLedger(price_list({"m": Price(input=1.0, output=1.0)}), clock), list[Event]()
    ledger.emit = events.append
    ledger.use_store(store or SqliteStore.in_memory())
    return ledger, events


def paid(ledger: SpendLedger, dollars: float, key: ClientKey) -> None:
    """Begin and end a call that costs so much."""
    call = CallRecord(id="r", began_at=0.0, model="m", tokens=Tokens(input=round(dollars * 1_000_000)))
    ledger.settle(ledger.reserve(call, key, account("http://127.0.0.1:9"), Estimate()), call)


def spent(ledger: SpendLedger, key: ClientKey) -> float:
    limit = limit_of_key(key)
    assert limit is not None
    return ledger._spent(ledger.settled, limit, ledger._clock.now())


async def test_a_budget_is_announced_once_at_80_percent_and_once_at_its_end_in_each_period() -> None:
    clock = VirtualClock(START)
    ledger, events = ledger_of(clock)
    key = ClientKey(name="team", budget=KeyBudget(10.0, "day"), created_at=START)

    for dollars in (7.9, 0.1, 1.0, 1.0):
        paid(ledger, dollars, key)
        ledger.announce()
    with pytest.raises(OwnError, match="it continues at 2027-01-16 00:00 UTC"):
        ledger.check_key(key)
    await clock.advance(DAY)
    ledger.check_key(key)
    paid(ledger, 8.5, key)
    ledger.announce()

    assert [(each.name, each.scope, each.fields["share"], each.fields["spent"]) for each in events] == [
        ("budget.warning", "key:team", 0.8, 8.0),
        ("budget.reached", "key:team", 1.0, 10.0),
        ("budget.warning", "key:team", 0.8, 8.5),
    ]


def test_a_budget_stops_the_next_call_before_its_event_is_due() -> None:
    ledger, events = ledger_of(VirtualClock(START))
    key = ClientKey(name="team", budget=KeyBudget(10.0, "day"), created_at=START)
    paid(ledger, 10.0, key)
    assert events == []

    with pytest.raises(OwnError, match="is reached"):
        ledger.check_key(key)
    ledger.announce()

    assert [each.name for each in events] == ["budget.reached"]


async def test_a_total_budget_counts_every_day_of_a_quarter_also_after_a_restart() -> None:
    clock, store = VirtualClock(START), SqliteStore.in_memory()
    ledger, _ = ledger_of(clock, store)
    key = ClientKey(name="team", budget=KeyBudget(900.0, "total"), created_at=START)
    seen = []

    for _ in range(90):
        paid(ledger, 10.0, key)
        seen.append(spent(ledger, key))
        ledger.save()
        await clock.advance(DAY)
    restarted, _ = ledger_of(clock, store)

    assert seen == pytest.approx([10.0 * (days + 1) for days in range(90)])
    with pytest.raises(OwnError, match=r"is reached \(\$900.00 spent\); ask for a key with another budget"):
        restarted.check_key(key)


@pytest.mark.parametrize("period", ["day", "month", "total"])
async def test_a_key_with_the_name_of_a_revoked_one_pays_for_none_of_its_calls(period: BudgetPeriod) -> None:
    clock, store = VirtualClock(START), SqliteStore.in_memory()
    ledger, _ = ledger_of(clock, store)
    wanted = KeyRequest(name="team", budget="$5" if period == "total" else f"$5/{period}")
    first = create_key(store, SETTINGS, wanted, now=clock.now())[0]
    running = CallRecord(id="r", began_at=0.0, model="m", tokens=Tokens(input=9_000_000))
    reserved = ledger.reserve(running, first, account("http://127.0.0.1:9"), Estimate())
    paid(ledger, 6.0, first)
    with pytest.raises(OwnError, match="is reached"):
        ledger.check_key(first)
    revoke_key(store, "team", now=clock.now())

    second = create_key(store, SETTINGS, wanted, now=clock.now() + 1.0)[0]
    ledger.settle(reserved, running)
    fresh = spent(ledger, second)
    paid(ledger, 4.5, second)
    ledger.save()
    restarted, _ = ledger_of(clock, store)

    assert (fresh, spent(ledger, second), spent(restarted, second), spent(restarted, first)) == (0.0, 4.5, 4.5, 15.0)
    assert sum(each.dollars for each in store.spend(key="team")) == pytest.approx(19.5)
    await clock.advance(DAY)
    paid(ledger, 1.0, second)
    assert spent(ledger, second) == pytest.approx(1.0 if period == "day" else 5.5)


@pytest.mark.parametrize(
    ("period", "at", "expected"),
    [("day", START, 1_800_057_600.0), ("month", START, 1_801_440_000.0), ("total", START, None)],
)
def test_the_next_period_begins_at_midnight_or_with_the_month(period: str, at: float, expected: float | None) -> None:
    assert KeyBudget(1.0, period).begins_again_at(at) == expected  # type: ignore[arg-type]


# -- nothing is spent unnoticed ----------------------------------------------------------------------

TEAM_KEY = b"x-api-key: " + TEAM.encode()
RESPONSES = b"/gateway/gpt/v1/responses"


async def called(request: bytes, **rules: Any) -> tuple[int, str, list[Message]]:
    """Return the status and the error of a call with a key that has these rules, and what the upstream saw."""
    seen: list[Message] = []
    keys = Keys(ClientKey(name="team", **rules))
    async with (
        RawUpstream(answering(ok(), seen)) as upstream,
        GatewayHarness(
            account(upstream.url), account(upstream.url, "gpt", "openai"), account(upstream.url, "gem", "google"),
            keys=keys.known,
        ) as harness,
        await connect(harness.port) as client,
    ):  # fmt: skip
        client.send(request)
        got = await client.read_message()
    return got.status, "" if got.status == 200 else json.loads(got.body)["error"]["message"], seen


@pytest.mark.parametrize(
    ("rules", "what"),
    [
        ({"budget": KeyBudget(5.0, "day")}, "a budget"),
        ({"tpm": 1000}, "a limit of tokens"),
        ({"tpm": 1000, "models": ("gpt-5",)}, "a limit of tokens"),
    ],
)
async def test_a_key_whose_tokens_count_cannot_have_an_answer_in_the_background(
    rules: dict[str, Any], what: str
) -> None:
    body = b'{"model": "gpt-5", "input": "hi", "background": %b}'
    refused = await called(post(body % b"true", key=TEAM_KEY, path=RESPONSES), **rules)
    fits = await called(post(body % b"false", key=TEAM_KEY, path=RESPONSES), **rules)
    other_key = await called(post(body % b"true", key=TEAM_KEY, path=RESPONSES), rpm=1000)

    message = f"the key team has {what}, so `background` must be false: the tokens would not be counted"
    assert refused == (403, message, [])
    assert (fits[0], other_key[0]) == (200, 200)


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (
            RESPONSES,
            b'{"model": "gpt-9-ultra"}',
            "the model 'gpt-9-ultra' has no price, and the key team has a budget; add it to [prices]",
        ),
        (
            b"/gateway/gem/v1beta/models/gemini-99:generateContent",
            b"{}",
            "the model 'gemini-99' has no price, and the key team has a budget; add it to [prices]",
        ),
        (
            RESPONSES,
            b'{"prompt": "pmpt_123"}',
            "the key team has a budget, so each call must name a model that has a price",
        ),
        (
            RESPONSES,
            b'{"model": "gpt-5", "models": ["gpt-9-ultra"]}',
            "the model 'gpt-9-ultra' has no price, and the key team has a budget; add it to [prices]",
        ),
    ],
)
async def test_a_key_with_a_budget_is_refused_a_model_without_a_price(path: bytes, body: bytes, message: str) -> None:
    refused = await called(post(body, key=TEAM_KEY, path=path), budget=KeyBudget(5.0, "day"))
    without_budget = await called(post(body, key=TEAM_KEY, path=path))
    own_token = await called(post(body, path=path))

    assert refused == (403, message, [])
    assert (without_budget[0], own_token[0]) == (200, 200)


async def test_a_key_with_a_budget_may_fall_back_to_models_that_have_prices() -> None:
    body = b'{"model": "gpt-5", "models": ["gpt-5-mini"], "route": "fallback"}'

    assert (await called(post(body, key=TEAM_KEY, path=RESPONSES), budget=KeyBudget(5.0, "day")))[0] == 200


@pytest.mark.parametrize(
    ("accepted", "forwarded"),
    [
        (b"br", b"identity"),
        (b"gzip, deflate, br, zstd", b"gzip, deflate"),
        (b"zstd;q=1.0, GZIP;q=0.5,*;q=0.1", b"GZIP;q=0.5"),
        (b"br, identity;q=0", b"identity"),
        (b"gzip,deflate", b"gzip,deflate"),
    ],
)
async def test_an_answer_is_asked_for_in_a_coding_in_which_its_tokens_can_be_read(
    accepted: bytes, forwarded: bytes
) -> None:
    header = b"Accept-Encoding: " + accepted
    _, _, (call,) = await called(post(b'{"model": "gpt-5"}', header, key=TEAM_KEY, path=RESPONSES))
    _, _, (uncounted,) = await called(post(b"{}", header, path=b"/gateway/work/v1/messages/count_tokens"))

    assert (call.all(b"accept-encoding"), uncounted.all(b"accept-encoding")) == ([forwarded], [accepted])


async def spent_with(head: bytes, body: bytes, **rules: Any) -> tuple[Any, Any]:
    """Return what a call of 400 bytes with such an answer counts: its tokens, and whether they are estimated."""
    keys = Keys(ClientKey(name="team", **rules))
    answer = b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)
    async with (
        RawUpstream(answering(answer, [])) as upstream,
        GatewayHarness(account(upstream.url, "gpt", "openai"), keys=keys.known) as harness,
        await connect(harness.port) as client,
    ):
        request = b'{"model": "gpt-5", "input": "%b"}'
        client.send(post(request % (b"x" * (400 - len(request) + 2)), key=TEAM_KEY, path=RESPONSES))
        assert (await client.read_message()).body == body
        (record,) = harness.gateway.calls.log.recent()
    return record.tokens, record.is_estimated


@pytest.mark.parametrize("coding", [b"br", b"zstd"])
async def test_an_answer_in_a_coding_that_nobody_asked_for_is_counted_by_its_bytes(
    coding: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    head = b"Content-Type: application/json\r\nContent-Encoding: %b\r\n" % coding

    for rules in ({"budget": KeyBudget(5.0, "day")}, {}):
        assert await spent_with(head, b"?" * 200, **rules) == (Tokens(input=100, output=200), True)
    logged = [each.message for each in caplog.records if each.name == "paceline.gateway"]
    assert logged == [f"gpt answers with {coding.decode()}, which was not asked for: tokens are estimated"] * 2


async def test_an_answer_without_usage_is_counted_by_its_bytes_if_there_is_a_budget() -> None:
    head, body = b"Content-Type: application/json\r\n", b'{"message": "%b"}' % (b"y" * 185)

    assert await spent_with(head, body, budget=KeyBudget(5.0, "day")) == (Tokens(input=100, output=50), True)
    assert await spent_with(head, body) == (None, False)
    assert await spent_with(b"Content-Type: audio/mpeg\r\n", b"?" * 200, budget=KeyBudget(5.0, "day")) == (
        Tokens(input=100, output=50),
        True,
    )
