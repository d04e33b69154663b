"""Budgets of keys: announced once at 80 % and at their end, and over in their next period."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.gateway_harness import GatewayHarness, account
from tests.gateway.raw_http import Message, RawUpstream, answering, connect, ok, post
from tests.gateway.test_client_keys import TEAM, Keys

from paceline.core.values.tokens import Tokens
from paceline.engine.key_commands import KeyRequest, create_key, revoke_key
from paceline.errors import StoreError
from paceline.events import Event
from paceline.gateway import SpendTotals
from paceline.gateway.budget_events import BudgetEvents
from paceline.gateway.errors import GatewayError
from paceline.gateway.key_budgets import KeyBudgets
from paceline.gateway.request_log import CallRecord
from paceline.settings import Settings
from paceline.settings.prices import Price, price_list
from paceline.store import ClientKey, KeyBudget, MemoryStore, SpendRow
from paceline.store.client_keys import BudgetPeriod
from paceline.testing import VirtualClock

START = 1_800_000_000.0  # 2027-01-15 08:00 UTC
DAY = 86_400.0
SETTINGS = Settings(home=Path("home"), store_url="sqlite://")


class Spent:
    """Dollars by day, as the gateway knows them."""

    def __init__(self, **days: float) -> None:
        self.days = {name.replace("_", "-").removeprefix("d"): dollars for name, dollars in days.items()}

    def spent_by(self, key: str, since: str) -> float:
        return sum(dollars for day, dollars in self.days.items() if day >= since)


async def test_a_budget_is_announced_once_at_80_percent_and_once_at_its_end_in_each_period() -> None:
    clock, spent, events = VirtualClock(START), Spent(), list[Event]()
    announced = BudgetEvents()
    announced.emit = events.append
    budgets = KeyBudgets(spent, announced, clock)
    key = ClientKey(name="team", budget=KeyBudget(10.0, "day"), created_at=START)

    for dollars in (7.9, 8.0, 9.0, 10.0, 11.0):
        spent.days["2027-01-15"] = dollars
        budgets.note(key)
        budgets.announce()
    with pytest.raises(GatewayError, match="it continues at 2027-01-16 00:00 UTC"):
        budgets.check(key)
    await clock.advance(DAY)
    budgets.check(key)
    spent.days["2027-01-16"] = 8.5
    budgets.note(key)
    budgets.announce()

    assert [(each.name, each.scope, each.fields["share"], each.fields["spent"]) for each in events] == [
        ("budget.warning", "key:team", 0.8, 8.0),
        ("budget.reached", "key:team", 1.0, 10.0),
        ("budget.warning", "key:team", 0.8, 8.5),
    ]


def test_a_budget_stops_the_next_call_before_its_event_is_due() -> None:
    spent, events, announced = Spent(d2027_01_15=1.0), list[Event](), BudgetEvents()
    announced.emit = events.append
    budgets = KeyBudgets(spent, announced, VirtualClock(START))
    key = ClientKey(name="team", budget=KeyBudget(10.0, "day"), created_at=START)
    budgets.check(key)
    spent.days["2027-01-15"] = 10.0
    budgets.note(key)
    assert events == []

    with pytest.raises(GatewayError, match="is reached"):
        budgets.check(key)
    budgets.announce()

    assert [each.name for each in events] == ["budget.reached"]


async def test_a_total_budget_counts_days_that_are_no_longer_in_memory() -> None:
    budgets = KeyBudgets(Spent(d2027_01_14=3.0), BudgetEvents(), VirtualClock(START))
    old = SpendRow(day="2026-10-01", key="team", account="work", model="m", requests=1, billed=6.0)
    new = SpendRow(day="2027-01-14", key="team", account="work", model="m", requests=1, billed=3.0)
    budgets.read_spend = lambda *, since, key=None: [old, new]
    key = ClientKey(name="team", budget=KeyBudget(9.0, "total"), created_at=START - 120 * DAY)

    await budgets.catch_up(key)
    with pytest.raises(GatewayError, match=r"\$9, is reached \(\$9.00 spent\); ask for a key with another budget"):
        budgets.check(key)


def paid(clock: VirtualClock, spending: SpendTotals, dollars: float, key: str = "team") -> None:
    """Count a call that costs so much: its model costs a dollar for a million tokens."""
    tokens = Tokens(input=round(dollars * 1_000_000))
    spending.add(CallRecord(id="r", began_at=0.0, key=key, account="work", model="m", tokens=tokens), clock.now())


def real_budgets(clock: VirtualClock, store: MemoryStore) -> tuple[SpendTotals, KeyBudgets]:
    spending = SpendTotals(price_list({"m": Price(input=1.0, output=1.0)}))
    spending.use_store(store, clock.now())
    budgets = KeyBudgets(spending, BudgetEvents(), clock)
    budgets.read_spend = store.spend
    return spending, budgets


async def test_a_total_budget_counts_every_day_of_a_quarter() -> None:
    clock, store = VirtualClock(START), MemoryStore()
    spending, budgets = real_budgets(clock, store)
    key = ClientKey(name="team", budget=KeyBudget(1000.0, "total"), created_at=START)
    seen = []

    for _ in range(90):
        await budgets.catch_up(key)
        paid(clock, spending, 10.0)
        seen.append(budgets.spent(key))
        spending.save()
        await clock.advance(DAY)

    assert seen == pytest.approx([10.0 * (days + 1) for days in range(90)])


async def test_a_store_that_fails_keeps_a_total_budget_as_it_was_known_and_cuts_nobody_off() -> None:
    clock, store = VirtualClock(START), MemoryStore()
    spending, budgets = real_budgets(clock, store)
    key = ClientKey(name="team", budget=KeyBudget(1000.0, "total"), created_at=START)
    for _ in range(40):
        await budgets.catch_up(key)
        paid(clock, spending, 10.0)
        spending.save()
        await clock.advance(DAY)
    asked = []

    def fail(*, since: str, key: str | None = None) -> list[SpendRow]:
        asked.append(clock.now())
        raise StoreError("the store does not answer")

    budgets.read_spend = fail
    for _ in range(5):
        await budgets.catch_up(key)
        budgets.check(key)

    assert budgets.spent(key) == pytest.approx(400.0)
    assert len(asked) == 1


async def test_a_call_whose_older_spending_cannot_be_read_is_answered() -> None:
    seen: list[Message] = []
    keys = Keys(ClientKey(name="team", budget=KeyBudget(5.0, "total"), created_at=1.0))

    def fail(*, since: str, key: str | None = None) -> list[SpendRow]:
        raise StoreError("the store does not answer")

    async with (
        RawUpstream(answering(ok(), seen)) as upstream,
        GatewayHarness(account(upstream.url, "gpt", "openai"), keys=keys.known) as harness,
        await connect(harness.port) as client,
    ):
        harness.gateway.budgets.read_spend = fail
        client.send(post(b'{"model": "gpt-5"}', key=TEAM_KEY, path=RESPONSES))
        got = await client.read_message()

    assert (got.status, len(seen)) == (200, 1)


@pytest.mark.parametrize("period", ["day", "month", "total"])
async def test_a_key_with_the_name_of_a_revoked_one_begins_with_a_whole_budget(period: BudgetPeriod) -> None:
    clock, store = VirtualClock(START), MemoryStore()
    spending, budgets = real_budgets(clock, store)
    wanted = KeyRequest(name="team", budget="$5" if period == "total" else f"$5/{period}")
    first = create_key(store, SETTINGS, wanted, now=clock.now()).record
    paid(clock, spending, 4.0)
    spending.save()
    paid(clock, spending, 2.0)
    with pytest.raises(GatewayError, match="is reached"):
        budgets.check(first)
    revoke_key(store, "team", now=clock.now())

    second = create_key(store, SETTINGS, wanted, now=clock.now() + 1.0, unsaved=spending.unsaved()).record
    budgets.check(second)
    fresh = budgets.spent(second)
    paid(clock, spending, 4.5)

    assert fresh == 0.0
    assert budgets.spent(second) == pytest.approx(4.5)
    await clock.advance(DAY)
    paid(clock, spending, 1.0)
    assert budgets.spent(second) == pytest.approx(1.0 if period == "day" else 5.5)


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
