"""What requests cost: by key, model, account and day, with the prices of campaigns, and never on a request's path."""

from collections.abc import Sequence

from paceline.core.values.tokens import Tokens
from paceline.errors import StoreUnreachable
from paceline.gateway.request_log import CallRecord
from paceline.gateway.spend_totals import MOST_MODELS, OTHER_MODEL, SpendTotals, day_of
from paceline.settings.prices import Price, price_list
from paceline.store import Cost, MemoryStore, SpendRow

NOON = 1_700_000_000.0 - 1_700_000_000.0 % 86400 + 43_200
TODAY, TOMORROW = "2023-11-14", "2023-11-15"
PRICES = price_list({"m": Price(input=1.0, output=10.0, cache_read=0.1, cache_write=2.0)})
MILLION = 1_000_000
TOKENS = Tokens(input=MILLION, output=MILLION, cache_read=MILLION, cache_write=MILLION)
DOLLARS = 13.1


def record(model: str = "m", key: str | None = "team", tokens: Tokens | None = TOKENS) -> CallRecord:
    return CallRecord(id="req-1", began_at=NOON, account="work", key=key, model=model, tokens=tokens)


def row(**fields: object) -> SpendRow:
    given = {"day": TODAY, "key": "team", "account": "work", "model": "m", "requests": 1, "tokens": TOKENS} | fields
    return SpendRow(**given)  # type: ignore[arg-type]


def test_a_request_costs_what_its_tokens_cost() -> None:
    spend = SpendTotals(PRICES)
    billed, imputed, unpriced = record(), record(), record("nobody-knows")
    imputed.is_billed = False

    spend.add(billed, NOON)
    spend.add(imputed, NOON)
    spend.add(unpriced, NOON)

    assert [spend.cost_of(each) for each in (billed, imputed, unpriced)] == [
        Cost(billed=DOLLARS),
        Cost(imputed=DOLLARS),
        Cost(),
    ]
    assert spend.unsaved() == [
        row(requests=2, tokens=TOKENS.plus(TOKENS), billed=DOLLARS, imputed=DOLLARS),
        row(model="nobody-knows", unpriced=1),
    ]
    assert spend.spent_by("team", TODAY) == 2 * DOLLARS
    assert (spend.spent_by("other", TODAY), spend.spent_by("team", TOMORROW)) == (0.0, 0.0)


def test_a_day_ends_at_midnight_utc() -> None:
    spend = SpendTotals(PRICES)
    midnight = NOON + 43_200

    spend.add(record(), midnight - 0.001)
    spend.add(record(), midnight)

    assert spend.unsaved() == [row(billed=DOLLARS), row(day=TOMORROW, billed=DOLLARS)]
    assert (day_of(midnight - 1.0), day_of(midnight)) == (TODAY, TOMORROW)
    assert [spend.spent_by("team", day) for day in (TODAY, TOMORROW)] == [2 * DOLLARS, DOLLARS]
    assert spend.today(midnight).requests == 1


def test_sums_are_stored_now_and_then_and_once() -> None:
    spend, store = SpendTotals(PRICES), MemoryStore()
    spend.use_store(store, NOON)
    stored = []
    for second in (0.0, 1.0, 4.9, 5.0, 6.0):
        spend.add(record(), NOON)
        spend.save_if_due(100.0 + second)
        stored.append(sum(each.requests for each in store.spend()))

    spend.save()

    assert stored == [1, 1, 1, 4, 4]
    assert (sum(each.requests for each in store.spend()), spend.unsaved()) == (5, [])
    assert spend.spent_by("team", TODAY) == 5 * DOLLARS


def test_a_restarted_gateway_knows_what_was_spent_before() -> None:
    before, after, store = SpendTotals(PRICES), SpendTotals(PRICES), MemoryStore()
    before.use_store(store, NOON)
    before.add(record(), NOON)
    before.save()

    after.use_store(store, NOON + 60.0)
    after.add(record(), NOON + 60.0)

    assert (after.spent_by("team", TODAY), after.today(NOON).requests) == (2 * DOLLARS, 2)
    after.use_store(store, NOON + 120.0)  # it leads again
    assert (after.spent_by("team", TODAY), after.today(NOON).requests) == (2 * DOLLARS, 2)


class _Unreachable(MemoryStore):
    is_reachable = False

    def add_spend(self, rows: Sequence[SpendRow]) -> None:
        if not self.is_reachable:
            raise StoreUnreachable("gone")
        super().add_spend(rows)


def test_what_cannot_be_stored_now_is_stored_later() -> None:
    spend, store = SpendTotals(PRICES), _Unreachable()
    spend.use_store(store, NOON)
    spend.add(record(), NOON)

    spend.save_if_due(100.0)
    store.is_reachable = True
    spend.save_if_due(129.0)
    assert store.spend() == []
    spend.save_if_due(130.0)

    assert (store.spend(), spend.unsaved()) == ([row(billed=DOLLARS)], [])


def test_ten_thousand_model_names_make_a_bounded_number_of_rows() -> None:
    spend = SpendTotals(PRICES)
    for number in range(10_000):
        spend.add(record(f"model-{number}", tokens=Tokens(input=1)), NOON)
    spend.add(record("m"), NOON)

    rows = spend.unsaved()

    assert (len(rows), sum(each.requests for each in rows)) == (MOST_MODELS + 1, 10_001)
    (other,) = [each for each in rows if each.model == OTHER_MODEL]
    assert other.billed == DOLLARS  # a known model keeps its price
