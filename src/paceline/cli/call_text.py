"""Calls of the gateway as text for people."""

from zoneinfo import ZoneInfo

from paceline.cli.time_text import moment
from paceline.cli.work_text import cost_text, dollars
from paceline.core.values.tokens import Tokens
from paceline.views.accounts import AccountBudget, AccountView
from paceline.views.gateway_calls import GatewayActivity, GatewayCounts, MemberFailure, SpendSum
from paceline.views.keys import KeyView

_THOUSAND, _MILLION = 1_000, 1_000_000


def call_counts_text(counts: GatewayCounts | None) -> str:
    """Return how many calls there are."""
    if counts is None:
        return "the daemon does not answer"
    refused = f", {counts.refused_per_minute} refused" if counts.refused_per_minute else ""
    return (
        f"{counts.in_flight} calls in flight, {counts.waiting} waiting; {counts.per_minute} in the last minute{refused}"
    )


def activity_text(activity: GatewayActivity) -> str:
    """Return the calls in a few words: `4 in flight, 56 wait, 120/min, 3 refused, 1.2M tokens, $4.10 today`."""
    parts = [f"{activity.in_flight} in flight", f"{activity.waiting} wait", f"{activity.per_minute}/min"]
    if activity.refused_per_minute:
        parts.append(f"{activity.refused_per_minute} refused")
    if activity.tokens_today.total:
        parts.append(f"{count_text(activity.tokens_today.total)} tokens")
        known = (activity.cost_today.billed or 0.0) + (activity.cost_today.imputed or 0.0)
        parts.append(f"{dollars(known)} today")
    return ", ".join(parts)


def count_text(count: int) -> str:
    """Return a large number with three digits: `812`, `12.4k`, `3.05M`."""
    if count < _THOUSAND:
        return str(count)
    value, unit = (count / _MILLION, "M") if count >= _MILLION else (count / _THOUSAND, "k")
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}{unit}"


def tokens_text(tokens: Tokens) -> str:
    """Return tokens by kind."""
    cached = f", {tokens.cache_read} from cache" if tokens.cache_read else ""
    written = f", {tokens.cache_write} to cache" if tokens.cache_write else ""
    return f"{tokens.input} in, {tokens.output} out{cached}{written}"


def spend_text(spent: SpendSum) -> str:
    """Return the cost, and what it lacks."""
    is_known = spent.cost.billed is not None or spent.cost.imputed is not None
    if spent.unpriced and not is_known:
        return "not known"
    return f"{cost_text(spent.cost, is_used=is_known)}{' or more' if spent.unpriced else ''}"


def failure_text(failure: MemberFailure, now: float, zone: ZoneInfo) -> str:
    """Return that an account of a pool fails: since when, why, and when it is tried again."""
    what = "cannot be reached" if failure.kind == "unreachable" else "refuses calls"
    calls = "1 call" if failure.calls == 1 else f"{failure.calls} calls"
    since = f"{what} since {moment(failure.since, now, zone)}: {failure.detail}, {calls}"
    pools = f"{'pool' if len(failure.pools) == 1 else 'pools'} {', '.join(failure.pools)}"
    if failure.retry_at is None:
        return f"{since}; the {pools} used other accounts for them"
    if failure.retry_at <= now:
        return f"{since}; the next call of the {pools} may try it"
    return f"{since}; tried last in the {pools} until {moment(failure.retry_at, now, zone)}"


def account_notes(account: AccountView, now: float, zone: ZoneInfo) -> list[str]:
    """Return what people should know of an account besides its limits: the end of its login, and its budget."""
    expiry, budget = account.expiry, account.daily_budget
    notes = []
    if expiry is not None and expiry.is_due(now):
        when = f"{'expired' if expiry.at <= now else 'expires'} {moment(expiry.at, now, zone)}"
        notes.append(f"its {expiry.what} {when}; {expiry.fix}")
    if budget is not None and budget.is_near:
        notes.append(f"its budget: {budget_text(budget, now, zone)}")
    return notes


def budget_text(key: KeyView | AccountBudget, now: float, zone: ZoneInfo) -> str:
    """Return what a key or an account has spent of its budget: `$3.10 of $5/day`; empty without one."""
    if key.budget is None:
        return ""
    text = f"{dollars(key.spent or 0.0)} of {key.budget}"
    if not key.is_reached:
        return text
    return f"{text}, reached" + ("" if key.resumes_at is None else f"; continues {moment(key.resumes_at, now, zone)}")
