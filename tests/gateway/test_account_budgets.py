"""Daily budgets of accounts: announced at 80 %, refused with a 402 at their end, and whole again on the next day."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from tests.gateway.gateway_harness import GatewayHarness, account, until
from tests.gateway.raw_http import Message, RawUpstream, answering, connect, ok, post

from paceline import Limiter
from paceline.core.values.session_output import Tokens
from paceline.events import Event
from paceline.gateway import SpendLedger
from paceline.gateway.routes import CallRecord
from paceline.gateway.spend_ledger import Estimate
from paceline.settings import KeyPoolSettings
from paceline.settings.model import Price, price_list
from paceline.store import SqliteStore
from paceline.testing import VirtualClock

START = 1_800_000_000.0  # 2027-01-15 08:00 UTC
MIDNIGHT = 1_800_057_600.0
FOUR_DOLLARS = json.dumps({"usage": {"input_tokens": 4_000_000, "output_tokens": 0}}).encode()


class Budgeted:
    """A gateway whose account `work` may spend $5 a day, of which each call costs $4, and its events."""

    def __init__(self, harness: GatewayHarness, clock: VirtualClock, events: list[Event]) -> None:
        self.harness = harness
        self.clock = clock
        self.events = events

    async def call(self, address: str = "work", model: str = "m") -> Message:
        body = json.dumps({"model": model}).encode()
        async with await connect(self.harness.port) as client:
            client.send(post(body, path=f"/gateway/{address}/v1/messages".encode()))
            return await client.read_message()


@asynccontextmanager
async def budgeted(store: SqliteStore | None = None, *, others: float | None = None) -> AsyncIterator[Budgeted]:
    """`others` is the budget of `other`, which is in the pool `team` with `work`."""
    clock, events = VirtualClock(START), list[Event]()
    ledger = SpendLedger(price_list({"m": Price(input=1.0, output=1.0)}), clock)
    async with RawUpstream(answering(ok(FOUR_DOLLARS), [])) as upstream:
        accounts = [
            account(upstream.url, "work", daily_budget=5.0),
            account(upstream.url, "other", daily_budget=others),
        ]
        harness = GatewayHarness(
            *accounts,
            limiter=Limiter(clock=clock, slot_timeout=3600.0),
            clock=clock,
            spend=ledger,
            pools={"team": KeyPoolSettings(name="team", accounts=("work", "other"))},
        )
        async with harness:
            if store is not None:
                ledger.use_store(store)
            ledger.emit = events.append
            yield Budgeted(harness, clock, events)
            ledger.announce()
            ledger.save()


async def test_an_account_stops_at_its_budget_until_the_next_day() -> None:
    async with budgeted() as at:
        statuses = [(await at.call()).status for _ in range(2)]
        refused = await at.call()
        await at.clock.advance(MIDNIGHT - START)
        statuses.append((await at.call()).status)

    assert statuses == [200, 200, 200]
    assert (refused.status, refused.header(b"retry-after")) == (402, b"%d" % (MIDNIGHT - START))
    assert json.loads(refused.body)["error"]["message"] == (
        "the budget of the account work, $5/day, is reached ($8.00 spent); it continues at 2027-01-16 00:00 UTC"
    )
    assert [(each.name, each.scope, each.fields["spent"], each.fields["budget"]) for each in at.events] == [
        ("budget.warning", "anthropic/work", 4.0, "$5/day"),
        ("budget.reached", "anthropic/work", 8.0, "$5/day"),
        ("budget.warning", "anthropic/work", 4.0, "$5/day"),
    ]


async def test_a_call_that_waited_while_others_reached_the_budget_is_refused() -> None:
    async with budgeted() as at:
        limiter = at.harness.gateway.limiter
        limiter.set_limit("anthropic/work", 1)
        slot = await limiter.acquire("anthropic/work/m")
        waiting = asyncio.ensure_future(at.call())
        await until(lambda: at.harness.gateway.calls.counts().waiting == 1)
        spent, ledger = (
            CallRecord(id="r", began_at=START, model="m", tokens=Tokens(input=5_000_000)),
            at.harness.gateway.spend,
        )
        ledger.settle(ledger.reserve(spent, None, at.harness.accounts[0], Estimate()), spent)
        await at.clock.advance(1.0)
        slot.release()
        await at.clock.advance(1.0)

        assert (await waiting).status == 402


async def test_what_was_spent_before_a_restart_counts_and_is_not_announced_again() -> None:
    store = SqliteStore.in_memory()
    async with budgeted(store) as at:
        assert (await at.call()).status == 200
    async with budgeted(store) as again:
        first = (await again.call()).status
        refused = (await again.call()).status

    assert (first, refused) == (200, 402)
    assert [each.name for each in again.events] == ["budget.reached"]


async def test_a_pool_goes_past_an_account_whose_budget_is_reached() -> None:
    async with budgeted(others=1.0) as at:
        accounts = [(await at.call("team")).header(b"x-paceline-account") for _ in range(3)]
        refused = await at.call("team")

    assert accounts == [b"work", b"other", b"work"]
    message = json.loads(refused.body)["error"]["message"]
    assert (refused.status, refused.header(b"retry-after")) == (402, b"%d" % (MIDNIGHT - START))
    assert message.startswith("no account of the pool team can serve this: the budget of the account ")
    assert message.count("is reached") == 2


@pytest.mark.parametrize("address", ["work", "team"])
async def test_a_model_without_a_price_cannot_be_counted(address: str) -> None:
    async with budgeted(others=1.0) as at:
        refused = await at.call(address, "nobody")

    assert refused.status == 403
    assert b"has no price, and the account work has a budget; add it to [prices]" in refused.body


async def test_an_account_without_a_budget_serves_any_model() -> None:
    async with budgeted() as at:
        assert [(await at.call("other", "nobody")).status for _ in range(2)] == [200, 200]
        assert msgspec.structs.asdict(at.harness.gateway.spend.today())["unpriced"] == 2
