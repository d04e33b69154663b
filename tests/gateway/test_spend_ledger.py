"""The ledger: what requests cost by key, model, account and day, what is reserved, and never on a request's path."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.gateway.gateway_harness import account, run_loop

from paceline.core.values.session_output import Tokens
from paceline.errors import StoreUnreachable
from paceline.gateway.routes import BudgetError, CallRecord
from paceline.gateway.spend_ledger import (
    MOST_MODELS,
    OTHER_MODEL,
    Estimate,
    Limit,
    Reservation,
    SpendLedger,
    limit_of_key,
)
from paceline.settings.model import Price, price_list
from paceline.store import BatchId, ClientKey, KeyBudget, SpendRow, SqliteStore
from paceline.testing import VirtualClock

NOON = 1_700_000_000.0 - 1_700_000_000.0 % 86400 + 43_200
DAY = 86_400.0
YESTERDAY, TODAY, TOMORROW = "2023-11-13", "2023-11-14", "2023-11-15"
PRICES = price_list({"m": Price(input=1.0, output=10.0, cache_read=0.1, cache_write=2.0)})
MILLION = 1_000_000
TOKENS = Tokens(input=MILLION, output=MILLION, cache_read=MILLION, cache_write=MILLION)
DOLLARS = 13.1
WORK = account("http://127.0.0.1:9")
TEAM = ClientKey(name="team", created_at=NOON - DAY, budget=KeyBudget(100.0, "day"))


def record(model: str = "m", tokens: Tokens | None = TOKENS) -> CallRecord:
    return CallRecord(id="req-1", began_at=NOON, account="work", model=model, tokens=tokens)


def dollars(amount: float) -> Tokens:
    return Tokens(input=round(amount * MILLION))


def begun(ledger: SpendLedger, estimate: float = 0.0, key: ClientKey | None = TEAM, model: str = "m") -> Reservation:
    """A call that is sent, and may cost so many dollars."""
    return ledger.reserve(record(model), key, WORK, Estimate(dollars(estimate)))


def paid(ledger: SpendLedger, call: CallRecord | None = None, key: ClientKey | None = TEAM) -> None:
    """Begin and end a call."""
    call = call or record()
    ledger.settle(ledger.reserve(call, key, WORK, Estimate()), call)


def row(**fields: object) -> SpendRow:
    given = {"day": TODAY, "key": "team", "account": "work", "model": "m", "requests": 1, "tokens": TOKENS}
    return SpendRow(**given | {"key_created_at": TEAM.created_at} | fields)  # type: ignore[arg-type]


def spent(ledger: SpendLedger, key: ClientKey = TEAM) -> float:
    limit = limit_of_key(key)
    assert isinstance(limit, Limit)
    return ledger._spent(ledger.settled, limit, ledger._clock.now())


def test_a_request_costs_what_its_tokens_cost() -> None:
    ledger = SpendLedger(PRICES, VirtualClock(NOON))
    billed, imputed, unpriced = record(), record(), record("nobody-knows")
    imputed.is_billed = False

    for each in (billed, imputed, unpriced):
        paid(ledger, each)

    assert [each.dollars for each in (billed, imputed, unpriced)] == [DOLLARS, DOLLARS, None]
    assert ledger.unsaved() == [
        row(requests=2, tokens=TOKENS.plus(TOKENS), billed=DOLLARS, imputed=DOLLARS),
        row(model="nobody-knows", unpriced=1),
    ]
    assert (spent(ledger), spent(ledger, ClientKey(name="other", budget=TEAM.budget))) == (2 * DOLLARS, 0.0)


async def test_a_call_counts_for_the_day_on_which_it_was_sent() -> None:
    clock = VirtualClock(NOON)
    ledger = SpendLedger(PRICES, clock)

    running = begun(ledger)
    paid(ledger)
    await clock.advance(43_200)
    paid(ledger)
    ledger.settle(running, record())

    assert ledger.unsaved() == [
        row(requests=2, tokens=TOKENS.plus(TOKENS), billed=2 * DOLLARS),
        row(day=TOMORROW, billed=DOLLARS),
    ]
    assert (spent(ledger), ledger.today().requests) == (DOLLARS, 1)


def test_a_reservation_is_settled_or_released_once() -> None:
    ledger = SpendLedger(PRICES, VirtualClock(NOON))
    settled, released = begun(ledger, 7.0), begun(ledger, 8.0)
    seen = [spent(ledger), ledger.unsaved()]

    for _ in range(2):
        ledger.settle(settled, record())
        ledger.release(settled)
        ledger.release(released)
        ledger.settle(released, record())

    assert seen == [0.0, []]
    assert (ledger.unsaved(), spent(ledger)) == ([row(billed=pytest.approx(DOLLARS))], DOLLARS)


def test_a_budget_admits_what_fits_beside_the_calls_that_run() -> None:
    ledger, key = SpendLedger(PRICES, VirtualClock(NOON)), ClientKey(name="team", budget=KeyBudget(0.3, "day"))
    running = [begun(ledger, 0.1, key) for _ in range(3)]

    with pytest.raises(
        BudgetError, match=r"no room beside the calls that run: .* this call may cost \$0.10"
    ) as refused:
        begun(ledger, 0.1, key)
    ledger.release(running[0])
    begun(ledger, 0.1, key)

    assert (refused.value.status, refused.value.retry_after) == (429, 1.0)


def test_a_call_that_may_cost_more_than_is_left_runs_alone() -> None:
    ledger, key = SpendLedger(PRICES, VirtualClock(NOON)), ClientKey(name="team", budget=KeyBudget(1.0, "day"))

    alone = begun(ledger, 5.0, key)
    with pytest.raises(BudgetError, match=r"no room"):
        begun(ledger, 0.01, key)
    ledger.settle(alone, record(tokens=dollars(1.0)))
    with pytest.raises(BudgetError, match=r"is reached .* it continues at 2023-11-15 00:00 UTC") as refused:
        begun(ledger, 0.01, key)

    assert refused.value.status == 402


async def test_those_that_wait_for_room_enter_one_by_one_as_calls_end() -> None:
    clock = VirtualClock(NOON)
    ledger, key, entered = SpendLedger(PRICES, clock), ClientKey(name="team", budget=KeyBudget(1.0, "day")), list[int]()
    running = [begun(ledger, 0.5, key), begun(ledger, 0.5, key)]

    async def enter(number: int) -> None:
        while True:
            try:
                running.append(begun(ledger, 0.5, key))
                entered.append(number)
                return
            except BudgetError as error:
                await ledger.room(error, NOON + 60.0)

    waiting = [asyncio.ensure_future(enter(number)) for number in range(4)]
    await run_loop(10)
    seen = [list(entered)]
    ledger.release(running[0])
    await run_loop(10)
    seen.append(list(entered))
    waiting[1].cancel()
    ledger.settle(running[1], record(tokens=dollars(0.25)))
    ledger.release(running[2])
    await run_loop(10)
    seen.append(list(entered))
    await clock.advance(60.0)
    results = await asyncio.gather(*waiting, return_exceptions=True)

    assert seen == [[], [0], [0, 2]]
    assert [type(each).__name__ for each in results] == ["NoneType", "CancelledError", "NoneType", "BudgetError"]


def test_sums_are_stored_once_a_second() -> None:
    ledger, store = SpendLedger(PRICES, VirtualClock(NOON)), SqliteStore.in_memory()
    ledger.use_store(store)
    stored = []
    for second in (0.0, 0.5, 0.9, 1.0, 1.5):
        paid(ledger)
        ledger.save_if_due(100.0 + second)
        stored.append(sum(each.requests for each in store.spend()))

    ledger.save()

    assert stored == [1, 1, 1, 4, 4]
    assert (sum(each.requests for each in store.spend()), ledger.unsaved()) == (5, [])
    assert spent(ledger) == pytest.approx(5 * DOLLARS)


def test_a_restarted_gateway_knows_what_was_spent_before() -> None:
    clock, store = VirtualClock(NOON), SqliteStore.in_memory()
    before, after = SpendLedger(PRICES, clock), SpendLedger(PRICES, clock)
    before.use_store(store)
    paid(before)
    before.save()

    after.use_store(store)
    paid(after)

    assert (spent(after), after.today().requests) == (2 * DOLLARS, 2)
    after.use_store(store)  # it leads again
    assert (spent(after), after.today().requests) == (2 * DOLLARS, 2)


def test_a_call_that_a_crash_ends_has_cost_its_estimate() -> None:
    clock, store = VirtualClock(NOON), SqliteStore.in_memory()
    crashed, after = SpendLedger(PRICES, clock), SpendLedger(PRICES, clock)
    crashed.use_store(store)
    running = begun(crashed, 3.0)
    paid(crashed)
    crashed.save()
    shown = crashed.unsaved()

    after.use_store(store)

    assert spent(after) == pytest.approx(3.0 + DOLLARS)
    assert shown == [row(requests=-1, tokens=Tokens(input=-3 * MILLION), billed=-3.0, estimated=-1)]
    crashed.use_store(store)  # it had only lost the lead
    crashed.settle(running, record(tokens=dollars(1.0)))
    crashed.save()
    assert sum(each.dollars for each in store.spend()) == pytest.approx(1.0 + DOLLARS) == spent(crashed)


def test_a_call_that_is_sent_as_one_ends_does_not_hide_what_that_one_takes_back() -> None:
    """Both have as many tokens, but of another kind, so of another price."""
    ledger, store = SpendLedger(PRICES, VirtualClock(NOON)), SqliteStore.in_memory()
    ledger.use_store(store)
    refused = ledger.reserve(record(), TEAM, WORK, Estimate(Tokens(output=MILLION)))
    ledger.save()
    running = ledger.reserve(record(), TEAM, WORK, Estimate(Tokens(input=MILLION)))
    ledger.release(refused)
    ledger.save()
    assert sum(each.dollars for each in store.spend()) == pytest.approx(1.0)

    ledger.settle(running, record(tokens=dollars(0.5)))
    ledger.save()

    assert sum(each.dollars for each in store.spend()) == pytest.approx(0.5)


class Unreliable(SqliteStore):
    """A store that answers, writes and does not answer, or does not write."""

    does = "nothing"

    def add_spend(self, rows: Sequence[SpendRow], batch: BatchId | None = None) -> None:
        if self.does != "nothing":
            super().add_spend(rows, batch)
        if self.does != "all":
            raise StoreUnreachable("gone")


def test_what_cannot_be_stored_now_is_stored_later() -> None:
    ledger, store = SpendLedger(PRICES, VirtualClock(NOON)), Unreliable.in_memory()
    ledger.use_store(store)
    paid(ledger)

    ledger.save_if_due(100.0)
    store.does = "all"
    ledger.save_if_due(129.0)
    assert store.spend() == []
    ledger.save_if_due(130.0)

    assert (store.spend(), ledger.unsaved()) == ([row(billed=DOLLARS)], [])


def test_what_was_stored_without_an_answer_is_not_stored_again() -> None:
    ledger, store = SpendLedger(PRICES, VirtualClock(NOON)), Unreliable.in_memory()
    ledger.use_store(store)
    store.does = "no answer"

    paid(ledger)
    ledger.save()
    paid(ledger)
    ledger.save()
    store.does = "all"
    ledger.use_store(store)

    assert (sum(each.requests for each in store.spend()), ledger.unsaved()) == (2, [])
    assert spent(ledger) == pytest.approx(2 * DOLLARS)


@pytest.mark.parametrize("days", [-40, -1, 1, 400])
async def test_a_clock_that_was_wrong_once_costs_no_other_day(days: int) -> None:
    clock, store = VirtualClock(NOON + days * DAY), SqliteStore.in_memory()
    ledger, key = (
        SpendLedger(PRICES, clock),
        ClientKey(name="team", budget=KeyBudget(100.0, "day"), created_at=clock.now()),
    )
    ledger.use_store(store)
    paid(ledger, key=key)
    clock.step(NOON - clock.now())
    on_the_right_day = [spent(ledger, key)]
    paid(ledger, key=key)
    on_the_right_day.append(spent(ledger, key))
    clock.step(NOON + 500 * DAY - clock.now())
    paid(ledger, key=key)
    clock.step(NOON - clock.now())
    on_the_right_day.append(spent(ledger, key))
    ledger.save()

    restarted = SpendLedger(PRICES, clock)
    restarted.use_store(store)

    assert on_the_right_day == [0.0, DOLLARS, DOLLARS]
    assert spent(restarted, key) == DOLLARS
    assert sum(each.dollars for each in store.spend()) == pytest.approx(3 * DOLLARS)


def test_ten_thousand_model_names_make_a_bounded_number_of_rows() -> None:
    ledger = SpendLedger(PRICES, VirtualClock(NOON))
    for number in range(10_000):
        paid(ledger, record(f"model-{number}", tokens=Tokens(input=1)))
    paid(ledger, record("m"))

    rows = ledger.unsaved()

    assert (len(rows), sum(each.requests for each in rows)) == (MOST_MODELS + 1, 10_001)
    (other,) = [each for each in rows if each.model == OTHER_MODEL]
    assert other.billed == DOLLARS  # a known model keeps its price
