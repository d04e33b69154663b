"""Calls of the gateway for people: those that run and wait, those of late, how many there are, and what they cost.

Here: values, and what a view needs of the gateway. Never here: the gateway itself.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import Literal, cast, get_args

import msgspec

from paceline.core.values.fields import fields_of
from paceline.core.values.session_output import Tokens
from paceline.errors import InvalidInput
from paceline.store import Balances, Cost, SpendRow
from paceline.store.spend import summed

SpendBy = Literal["day", "key", "account", "model"]
DAY_SECONDS = 86400
DEFAULT_DAYS = "30d"
LONGEST_DAYS = 5
"""Characters of a number of days: up to 9999d, which is longer than there have been models."""


class GatewayCall(msgspec.Struct, gc=False, kw_only=True):
    """A call of the gateway. Its body is never kept.

    `reason` and `retry_at` say why it waits and when that is checked next, or why the gateway refused it; `detail` is
    what it wrote to a client that it refused. `waited_seconds` and `first_byte_seconds`, which is when its answer
    began, are counted from its arrival.
    """

    id: str
    scope: str = ""
    account: str | None = None
    key: str | None = None
    model: str | None = None
    reason: str | None = None
    detail: str | None = None
    retry_at: float | None = None
    waited_seconds: float = 0.0
    first_byte_seconds: float | None = None
    began_at: float
    status: int | None = None
    tokens: Tokens | None = None


class GatewayRequest(GatewayCall, kw_only=True):
    """One call as people see it. `seconds` are those from its arrival to its end, or until now.

    `tokens` and the parts of `cost` are null where they are not known.
    """

    seconds: float
    cost: Cost


class GatewayRequests(msgspec.Struct, frozen=True, kw_only=True):
    """The calls that run, those that wait (longest first), and those that ended of late (last first)."""

    running: list[GatewayRequest]
    waiting: list[GatewayRequest]
    recent: list[GatewayRequest]


class GatewayCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many calls there are now, and how many came and were refused in the last minute.

    `refused_per_minute` counts every refusal by a provider, also those that the gateway waited out, and every call
    whose wait ran out.
    """

    in_flight: int = 0
    waiting: int = 0
    per_minute: int = 0
    refused_per_minute: int = 0


class MemberFailure(msgspec.Struct, frozen=True, kw_only=True):
    """An account of a pool that has failed since it last served a call: its upstream, or the provider, refused.

    `calls` is how many have failed since then, `last_at` the last one. An account that is `unreachable` is tried last
    until `retry_at`; a `refused` one is used as its scope allows.
    """

    account: str
    scope: str
    pools: tuple[str, ...]
    kind: Literal["unreachable", "refused"]
    detail: str
    since: float
    last_at: float
    calls: int
    retry_at: float | None


class GatewayActivity(GatewayCounts, frozen=True, kw_only=True):
    """The counts, the scopes that calls wait for, failing accounts of pools, and what this day (UTC) has used.

    `cost_today` lacks the cost of `unpriced_today` calls, which is not known.
    """

    waiting_by_scope: dict[str, int] = {}
    failures: list[MemberFailure] = []
    requests_today: int = 0
    tokens_today: Tokens = Tokens()
    cost_today: Cost = Cost()
    unpriced_today: int = 0

    @property
    def counts(self) -> GatewayCounts:
        return GatewayCounts(**fields_of(GatewayCounts, self))


class SpendSum(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What calls have used, by the fields that were asked for. Costs are in dollars, null if nothing has a price.

    The sums lack the cost of `unpriced` calls: their model has no price, or they did not say their tokens. The tokens
    of `estimated` calls are in part a guess.
    """

    day: str | None = None
    key: str | None = None
    account: str | None = None
    model: str | None = None
    requests: int
    tokens: Tokens
    cost: Cost
    unpriced: int
    estimated: int


class GatewaySpend(msgspec.Struct, frozen=True, kw_only=True):
    """The sums since a day (UTC), and the total of all of them."""

    since: str
    by: tuple[SpendBy, ...]
    rows: list[SpendSum]
    total: SpendSum


class GatewayCalls:
    """What views need of a gateway: here, of a process without one."""

    def counts(self) -> GatewayCounts:
        return GatewayCounts()

    def activity(self) -> GatewayActivity:
        return GatewayActivity()

    def requests(self, limit: int) -> GatewayRequests:
        return GatewayRequests(running=[], waiting=[], recent=[])

    def request(self, request_id: str) -> GatewayRequest | None:
        return None

    def unsaved(self) -> Sequence[SpendRow]:
        return ()

    def balances(self) -> Balances | None:
        """Return what keys and accounts have spent, None if it is only known by the store."""
        return None

    def is_unserved(self, scope: str) -> bool:
        """Return whether clients have named a model for this scope that never answered: it may not exist."""
        return False


def spend_since(given: str | None, now: float) -> str:
    """Return the first day that is meant: a day, or `7d` for the last seven. Raise `InvalidInput` for anything else."""
    if given is None:
        given = DEFAULT_DAYS
    if given.isascii() and given.endswith("d") and given[:-1].isdigit() and 1 <= len(given) <= LONGEST_DAYS:
        return _day(now - (max(1, int(given[:-1])) - 1) * DAY_SECONDS)
    try:
        return datetime.strptime(given, "%Y-%m-%d").date().isoformat()
    except ValueError:
        raise InvalidInput(
            f"{given!r:.80} is no day: write one as {_day(now)}, or 7d for the last seven days"
        ) from None


def spend_fields(given: str) -> tuple[SpendBy, ...]:
    """Return the fields of a list such as `key,model`. Raise `InvalidInput` for others."""
    known = get_args(SpendBy)
    fields = [each.strip() for each in given.split(",") if each.strip()]
    for each in fields:
        if each not in known:
            raise InvalidInput(f"spend cannot be shown by {each!r:.80}: use {', '.join(known[:-1])} or {known[-1]}")
    return cast(tuple[SpendBy, ...], tuple(dict.fromkeys(fields)))


def spend_view(rows: Iterable[SpendRow], since: str, by: Sequence[SpendBy]) -> GatewaySpend:
    """Return the sums by these fields: days in their order, else the most expensive first."""
    rows = [row for row in summed(rows) if not row.is_empty]
    groups: dict[tuple[str, ...], list[SpendRow]] = {}
    for row in rows:
        groups.setdefault(tuple(getattr(row, field) for field in by), []).append(row)
    sums = [(group, spend_sum(found, dict(zip(by, group, strict=True)))) for group, found in groups.items()]
    is_by_day = "day" in by
    sums.sort(key=lambda each: (each[0] if is_by_day else (), -_dollars(each[1]), -each[1].tokens.total, each[0]))
    return GatewaySpend(since=since, by=tuple(by), rows=[each for _, each in sums], total=spend_sum(rows, {}))


def spend_sum(rows: Iterable[SpendRow], names: dict[str, str]) -> SpendSum:
    total = reduce(SpendRow.plus, rows, SpendRow(day="", key="", account="", model=""))
    cost = Cost(billed=total.billed or None, imputed=total.imputed or None)
    sums = {name: getattr(total, name) for name in ("requests", "tokens", "unpriced", "estimated")}
    return SpendSum(**sums | names, cost=cost)


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def _dollars(each: SpendSum) -> float:
    return (each.cost.billed or 0.0) + (each.cost.imputed or 0.0)
