"""`why UNIT`: what holds it, since when, until when, and what a person can do about it; also for a call."""

import time
from collections.abc import Mapping, Sequence
from urllib.parse import quote

import msgspec
from rich.text import Text

from paceline.cli.call_text import budget_text, failure_text, tokens_text
from paceline.cli.limit_text import condition_text, learnt_text, open_text
from paceline.cli.live_state import asking, read_accounts, read_live
from paceline.cli.options import AsJson, UnitName
from paceline.cli.output import one_line, out, print_value
from paceline.cli.time_text import moment
from paceline.cli.unit_lookup import MOST_SEARCHED, find_unit
from paceline.cli.wiring import Home, open_home
from paceline.cli.work_text import cost_text
from paceline.config_files.documents import did_you_mean
from paceline.engine.campaign_lookup import find_campaign
from paceline.engine.key_commands import present_keys, scope_of_key
from paceline.errors import UnknownName
from paceline.views.accounts import AccountBudget
from paceline.views.capacity import ScopeCapacity, capacity_rows
from paceline.views.gateway_calls import GatewayRequest, MemberFailure
from paceline.views.units import iter_units
from paceline.views.why import Why

CALL_MARK = "req-"
"""How the ids of calls begin."""


def command(unit: UnitName, as_json: AsJson = False) -> None:
    """Show what holds a unit, since when, until when, and what you can do about it.

    For a call of the gateway, give the x-paceline-request-id of its answer, or an id that the page lists. For an
    account, a pool or a key, give its name or its scope.
    """
    with open_home() as home:
        if unit.startswith(CALL_MARK):
            call = _find_call(home, unit)
            print_value(call) if as_json else _print_call(call, home)
            return
        try:
            found = find_unit(home.store, unit)
        except UnknownName:
            if (capacity := _capacity_of(home, unit)) is None:
                raise _unknown(home, unit) from None
            print_value(capacity) if as_json else _print_capacity(capacity, home)
            return
        first, *others = home.explain_unit(found, find_campaign(home.store, found.campaign))
        if as_json:
            print_value({**msgspec.to_builtins(first), "others": others} if others else first)
            return
        for each in (first, *others):
            _print_why(each, home)


def _unknown(home: Home, name: str) -> UnknownName:
    """Return the error for a name that means nothing here."""
    units = [unit.id for unit in iter_units(home.store, campaign=None, most=MOST_SEARCHED)]
    keys = [each.key.name for each in present_keys(home.store.client_keys())]
    others = [*home.settings.accounts, *home.settings.key_pools, *keys]
    missing = f"there is no unit, account, pool or key {name!r:.80}"
    if hint := did_you_mean(name, [*units, *(unit.partition("/")[2] for unit in units), *others]):
        return UnknownName(f"{missing}{hint}")
    listed = f" Accounts, pools and keys are: {', '.join(others)}." if others else ""
    help_text = f"`paceline units CAMPAIGN` lists units; the id of a call begins with {CALL_MARK}"
    return UnknownName(f"{missing}.{listed} {help_text}")


def _find_call(home: Home, name: str) -> GatewayRequest:
    """Return the call of the gateway that the daemon knows by this id."""
    with asking(home) as ask:
        answer = None if ask is None else ask(f"/v1/gateway/requests/{quote(name, safe='')}")
    if answer is None:
        raise UnknownName(f"{name} is a call of the gateway, and no daemon answers here: it knows them while it runs")
    if (found := answer.decoded(GatewayRequest)) is None:
        raise UnknownName(
            f"the daemon does not know the call {name}: it keeps the last 1,000 that ended, since its start. "
            "`paceline gateway spend` has the sums of all"
        )
    return found


class _Capacity(msgspec.Struct, frozen=True):
    """The scopes of an account, a pool or a key, its accounts that fail calls of pools, and budgets by scope."""

    scopes: Sequence[ScopeCapacity]
    failures: Sequence[MemberFailure]
    budgets: Mapping[str, AccountBudget]


def _capacity_of(home: Home, name: str) -> _Capacity | None:
    """Return what the name of an account, a pool or a key stands for; None if it is no such name."""
    settings = home.settings
    pool = settings.key_pools.get(name)
    accounts = {name, *(() if pool is None else pool.all_accounts)}
    meant = {each.scope for each in settings.accounts.values() if {each.name, each.scope} & accounts}
    meant |= {scope_of_key(name), name}
    live = read_live(home)
    fleet = home.read_fleet(time.time(), scopes=live.scopes)
    rows = capacity_rows(fleet)
    of_models = tuple(f"{scope}/" for scope in meant)
    found = [
        row for row in rows if row.scope in meant or (row.scope.startswith(of_models) and condition_text(row, 0.0))
    ]
    if not found:
        return None
    known = [each for each in read_accounts(home, fleet) if each.scope in meant]
    budgets = {each.scope: each.daily_budget for each in known if each.daily_budget is not None}
    return _Capacity(found, [each for each in live.failures if each.scope in meant], budgets)


def _print_capacity(capacity: _Capacity, home: Home) -> None:
    now = time.time()
    failures = {each.scope: failure_text(each, now, home.zone) for each in capacity.failures}
    for row in capacity.scopes:
        of = "" if row.limit is None else f" of {row.limit}"
        budget = capacity.budgets.get(row.scope)
        spent = None if budget is None else f"its budget: {budget_text(budget, now, home.zone)}"
        state = "; ".join(filter(None, (failures.get(row.scope), spent, condition_text(row, now)))) or open_text(row)
        out().print(Text.assemble((f"{row.scope} ", "bold"), one_line(state, 400)))
        out().print(Text.assemble(("  now    ", "dim"), f"{row.in_flight}{of} in flight, {row.queued} waiting"))


def _print_call(call: GatewayRequest, home: Home) -> None:
    if call.status is None:
        state = "runs" if call.reason is None else f"waits: {call.reason}"
    else:
        state = f"answered with {call.status}{'' if call.reason is None else f': {call.reason}'}"
    is_late = call.status is not None and call.retry_at is not None
    facts = [
        ("answer", call.detail),
        ("scope", call.scope or None),
        ("model", call.model),
        ("key", call.key),
        ("again" if is_late else "until", _moment(call.retry_at, home)),
        ("waited", f"{call.waited_seconds:.2f} s of {call.seconds:.2f} s" if call.detail is None else None),
        ("tokens", None if call.tokens is None else tokens_text(call.tokens)),
        ("cost", None if call.tokens is None else cost_text(call.cost)),
    ]
    out().print(Text.assemble((f"{call.id} ", "bold"), one_line(state, 400)))
    for label, value in facts:
        if value is not None:
            out().print(Text.assemble((f"  {label:<7}", "dim"), one_line(value, 300)))


def _moment(at: float | None, home: Home) -> str | None:
    return None if at is None else moment(at, time.time(), home.zone)


def _print_why(why: Why, home: Home) -> None:
    console, now = out(), time.time()
    console.print(Text.assemble((f"{why.unit} is {why.state}: ", "bold"), one_line(why.detail, 400)))
    learnt = None if why.learnt is None else learnt_text(why.learnt, now)
    facts = (("scope", why.scope), ("limit", learnt), ("since", why.since), ("until", why.until), ("to do", why.hint))
    for label, value in facts:
        if value is not None:
            shown = moment(value, now, home.zone) if isinstance(value, float) else value
            console.print(Text.assemble((f"  {label:<7}", "dim"), one_line(shown, 300)))
