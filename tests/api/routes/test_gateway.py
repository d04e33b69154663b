"""The books of the gateway over HTTP: its requests, and what they cost."""

from typing import Any

import pytest
from tests.daemon import Daemon

from paceline.agents.account import Account
from paceline.core.values.session_output import Tokens
from paceline.gateway.request_accounting import RequestAccounting
from paceline.gateway.routes import CallRecord
from paceline.gateway.spend_ledger import Estimate, SpendLedger
from paceline.metrics import MetricsRegistry
from paceline.settings.model import Price, price_list
from paceline.store import ClientKey, KeyBudget, SpendRow
from paceline.store.spend import day_of

PRICES = price_list({"m": Price(input=1.0, output=10.0)})
MILLION = 1_000_000
TOKENS = {"input": MILLION, "output": 0, "cache_read": 0, "cache_write": 0}


@pytest.fixture
def books(daemon: Daemon) -> RequestAccounting:
    """The books of a gateway beside the API."""
    clock = daemon.engine.clock
    books = RequestAccounting(clock, SpendLedger(PRICES, clock), MetricsRegistry())
    books.spend.use_store(daemon.store)
    daemon.context.calls = books
    return books


def called(books: RequestAccounting, now: float, key: str | None = None, model: str = "m") -> CallRecord:
    """A call that has ended well."""
    record = books.log.new_record(now)
    record.account, record.key, record.model, record.scope = "work", key, model, f"openai/work/{model}"
    record.tokens, record.status, record.seconds, record.first_byte_seconds = Tokens(input=MILLION), 200, 0.5, 0.25
    books.log.admit(record, now)
    client = None if key is None else ClientKey(name=key, created_at=1.0)
    work = Account(name="work", provider="openai", kind="metered")
    books.spend.settle(books.spend.reserve(record, client, work, Estimate()), record)
    books.log.ended(record)
    return record


async def test_a_call_can_be_read_by_its_id(daemon: Daemon, books: RequestAccounting) -> None:
    record = called(books, daemon.engine.clock.now(), "team")

    expected = {
        "id": record.id,
        "scope": "openai/work/m",
        "account": "work",
        "key": "team",
        "model": "m",
        "reason": None,
        "detail": None,
        "retry_at": None,
        "waited_seconds": 0.0,
        "first_byte_seconds": 0.25,
        "seconds": 0.5,
        "began_at": record.began_at,
        "status": 200,
        "tokens": TOKENS,
        "cost": {"billed": 1.0, "imputed": None},
    }
    assert await daemon.get(f"/v1/gateway/requests/{record.id}") == expected
    assert await daemon.get("/v1/gateway/requests") == {"running": [], "waiting": [], "recent": [expected]}
    assert await daemon.get("/v1/gateway/requests?limit=0") == {"running": [], "waiting": [], "recent": []}


async def test_an_unknown_call_is_named(daemon: Daemon, books: RequestAccounting) -> None:
    answer = await daemon.get("/v1/gateway/requests/req-1-1", code=404)

    assert "no call 'req-1-1'" in answer["detail"]


async def test_spend_is_shown_by_what_is_asked_for_stored_or_not(daemon: Daemon, books: RequestAccounting) -> None:
    now = daemon.engine.clock.now()
    called(books, now, "a")
    books.spend.save()
    called(books, now, "a")
    called(books, now, "b", "dear")

    answer = await daemon.get("/v1/gateway/spend?by=key,model&since=1d")

    twice = TOKENS | {"input": 2 * MILLION}
    assert answer == {
        "since": day_of(now),
        "by": ["key", "model"],
        "rows": [
            {"key": "a", "model": "m", "requests": 2, "tokens": twice, "cost": {"billed": 2.0, "imputed": None},
             "unpriced": 0, "estimated": 0},
            {"key": "b", "model": "dear", "requests": 1, "tokens": TOKENS, "cost": {"billed": None, "imputed": None},
             "unpriced": 1, "estimated": 0},
        ],
        "total": {"requests": 3, "tokens": TOKENS | {"input": 3 * MILLION}, "cost": {"billed": 2.0, "imputed": None},
                  "unpriced": 1, "estimated": 0},
    }  # fmt: skip
    only = await daemon.get("/v1/gateway/spend?key=b&by=")
    assert (only["rows"][0]["requests"], only["total"]["requests"]) == (1, 1)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("since=yesterday", "'yesterday' is no day"),
        ("since=2026-13-01", "'2026-13-01' is no day"),
        ("since=d", "'d' is no day"),
        ("by=colour", "cannot be shown by 'colour': use day, key, account or model"),
    ],
)
async def test_a_question_that_cannot_be_understood_is_refused(daemon: Daemon, query: str, says: str) -> None:
    assert says in (await daemon.get(f"/v1/gateway/spend?{query}", code=400))["detail"]


async def test_the_overview_has_the_numbers_of_the_strip(daemon: Daemon, books: RequestAccounting) -> None:
    called(books, daemon.engine.clock.now())
    books.refused()

    answer = await daemon.get("/v1/overview")

    counts = {"in_flight": 0, "waiting": 0, "per_minute": 1, "refused_per_minute": 1}
    assert answer["status"]["gateway"] == counts
    assert answer["gateway"] == counts | {
        "waiting_by_scope": {},
        "requests_today": 1,
        "tokens_today": TOKENS,
        "cost_today": {"billed": 1.0, "imputed": None},
        "unpriced_today": 0,
        "failures": [],
    }


async def test_the_overview_knows_what_a_key_has_spent_without_a_row_of_the_store(
    daemon: Daemon, books: RequestAccounting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A budget in all counts every day that there was: 117,000 rows took 0.3 s of the engine's loop."""
    budget = KeyBudget(3.0, "total")
    daemon.store.create_client_key(ClientKey(name="team", budget=budget, created_at=1.0), "x")
    for _ in range(3):
        called(books, daemon.engine.clock.now(), "team")
    books.spend.save()
    read, spend = list[object](), daemon.store.spend

    def counted(**asked: Any) -> list[SpendRow]:
        read.append(asked)
        return spend(**asked)

    monkeypatch.setattr(daemon.store, "spend", counted)

    needs = (await daemon.get("/v1/overview"))["needs"]

    assert ([(need["kind"], need["target"]) for need in needs], read) == ([("reached_budget", "team")], [])


async def test_a_model_that_no_provider_knows_leaves_no_row(daemon: Daemon, books: RequestAccounting) -> None:
    for name in ("nosuch-9", "opus-4-6"):
        scope = books.model_names.counted_scope(f"anthropic/max-1/{name}")
        (await daemon.engine.limiter.acquire(scope)).release()
    held = await daemon.engine.limiter.acquire(books.model_names.counted_scope("anthropic/max-1/new-1"))
    books.model_names.note_served("anthropic", "max-1", "opus-4-6")

    listed = [each["scope"] for each in (await daemon.get("/v1/scopes"))["scopes"]]
    shown = [each["scope"] for each in (await daemon.get("/v1/overview"))["capacity"]]
    held.release()

    for scopes in (listed, shown):
        models = sorted(each for each in scopes if each.startswith("anthropic/max-1/"))
        assert models == ["anthropic/max-1/new-1", "anthropic/max-1/opus-4-6"]
