"""What is going on: `status`, `list`, `limits`, `events`, `why` and `top`."""

import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Annotated
from urllib.parse import quote

import msgspec
from rich.text import Text

from paceline.agents.account import split_login
from paceline.cli import output
from paceline.cli.output import flag, option
from paceline.daemon.contact import asking, read_accounts, read_hosts, read_keys, read_live
from paceline.daemon.home import Home, open_home
from paceline.daemon.times import moment
from paceline.engine.command_log import is_change
from paceline.engine.commands import MOST_LISTED, find_campaign, present_keys, scope_of_key
from paceline.errors import InvalidInput, UnknownName
from paceline.events import is_campaign_wait
from paceline.settings.checks import did_you_mean
from paceline.store import StoredEvent, UnitCounts
from paceline.views.capacity import AccountView, FleetState, ScopeCapacity, SpentBudget, capacity_rows, limit_rows
from paceline.views.gateway_calls import GatewayCounts, GatewayRequest, MemberFailure
from paceline.views.status import CampaignSummary, StatusSummary, campaign_summary, read_status_summary
from paceline.views.units import UnitEvents, iter_units
from paceline.views.why import Why

# -- status -------------------------------------------------------------------------------------------


def status_command(as_json: output.AsJson = False) -> None:
    """Show whether an engine runs, how full the pool is, and when the next parked unit resumes."""
    with open_home() as home:
        live = read_live(home)
        fleet = home.read_fleet(time.time(), scopes=live.scopes)
        status = read_status_summary(fleet, home.leader_process(), live.counts)
        accounts = read_accounts(home, fleet)
        if as_json:
            more = {"failures": live.failures, "accounts": accounts}
            output.print_value(msgspec.structs.asdict(status) | more)
            return
        _print_status(status, live.failures, accounts, fleet, home)


def _print_status(
    status: StatusSummary,
    failures: Sequence[MemberFailure],
    accounts: Sequence[AccountView],
    fleet: FleetState,
    home: Home,
) -> None:
    engine, pool, now = status.engine, status.pool, fleet.now
    fact = partial(output.print_fact, width=15)
    if engine.since is not None:
        where = f"process {engine.pid}" if engine.host is None else f"process {engine.pid} on {engine.host}"
        fact("engine", f"{engine.state}, {where}, since {moment(engine.since, now, home.zone)}")
    else:
        fact("engine", "not running; `paceline run PLAN` starts it")
    if (trouble := home.trouble) is not None:
        fact("trouble", f"nothing starts: {trouble}")
    sessions = f"{pool.running} of {output.limit_text(pool.sessions)} sessions running"
    fact("pool", f"{sessions}, {pool.waiting} units waiting, {pool.parked} parked")
    units = msgspec.structs.asdict(status.units)
    fact("units", ", ".join(f"{count} {state}" for state, count in units.items() if count) or "none")
    if status.gateway is None or status.gateway != GatewayCounts():
        fact("gateway", output.call_counts_text(status.gateway))
    for failure in failures:
        fact(failure.scope, output.failure_text(failure, now, home.zone))
    for key in read_keys(home, now).keys:
        if key.is_reached:
            fact(f"key:{key.name}", f"its budget: {output.budget_text(key, now, home.zone)}")
    for account in accounts:
        for note in output.account_notes(account, now, home.zone):
            fact(account.scope, note)
    if status.next_resume_at is not None:
        fact("next resume", moment(status.next_resume_at, now, home.zone))
    for campaign in fleet.campaigns:
        if campaign.pause_reason is not None:
            hint = f"fix the cause, then `paceline resume {campaign.name}`"
            fact(campaign.name, f"paused itself: {campaign.pause_reason}; {hint}")
    for row in capacity_rows(fleet):
        if condition := output.condition_text(row, now):
            fact(row.scope, condition)
    fact("home", str(home.path))


# -- list ---------------------------------------------------------------------------------------------


def list_command(as_json: output.AsJson = False) -> None:
    """List the campaigns and how far they are."""
    with open_home() as home:
        counts = home.store.counts()
        campaigns = [campaign_summary(each, counts.get(each.name, UnitCounts())) for each in home.store.campaigns()]
    if as_json:
        output.print_value({"campaigns": campaigns})
    elif campaigns:
        _print_campaigns(campaigns)
    else:
        output.say("No campaigns yet. `paceline run PLAN` adds one and runs it.")


def _print_campaigns(campaigns: list[CampaignSummary]) -> None:
    columns = ("campaign", "state", "priority", "agent", "done", "running", "waiting", "parked", "failed")
    made = output.table(*columns, right=("priority", *columns[4:]))
    for campaign in campaigns:
        each = campaign.units
        agent = f"{campaign.agent} {campaign.model or ''}".strip()
        waiting = each.todo - each.parked
        numbers = (f"{each.done}/{each.total}", each.running, waiting, each.parked, each.stopped)
        made.add_row(campaign.name, campaign.shown_state, str(campaign.priority), agent, *map(str, numbers))
    output.print_table(made)
    for campaign in campaigns:
        if campaign.pause_reason is not None:
            output.say(f"{campaign.name} paused itself: {output.one_line(campaign.pause_reason, 300)}")
            output.say(f"  Fix the cause, then `paceline resume {campaign.name}`.")


# -- limits -------------------------------------------------------------------------------------------

LONGEST_STATE = 1000
"""Characters of a state: all of a usual one. A terminal folds it."""


def limits_command(as_json: output.AsJson = False) -> None:
    """Show every limit: the value in force, its source, what was learned, what is paused or closed."""
    with open_home() as home:
        now = time.time()
        lines = [
            output.limit_line(row, home.settings, now)
            for row in limit_rows(home.read_fleet(now, scopes=read_live(home).scopes))
        ]
    if as_json:
        output.print_value({"limits": lines})
        return
    _print_limits(lines)


def _print_limits(lines: list[output.LimitLine]) -> None:
    numbers = ("limit", "configured", "platform", "adaptive", "in flight")
    made = output.table("scope", *numbers, "from", "state", right=numbers)
    for line in lines:
        learned = ("" if each is None else str(each) for each in (line.platform, line.adaptive))
        made.add_row(
            line.scope,
            output.limit_text(line.effective),
            output.limit_text(line.configured),
            *learned,
            str(line.in_flight or ""),
            line.source,
            output.one_line(line.state, LONGEST_STATE),
        )
    output.print_table(made)


# -- events -------------------------------------------------------------------------------------------


def events_command(
    unit: Annotated[
        str | None, option("UNIT", "Only this unit: its events, and its waits.", autocompletion=output.complete_unit)
    ] = None,
    audit: Annotated[
        bool, flag("Only changes by people and programs: when, who, what, and to what.", "--audit")
    ] = False,
    limit: Annotated[int, option(None, "How many of the last events.", min=1)] = 50,
    after: Annotated[int | None, option("ID", "Events after this id, instead of the last ones.", min=0)] = None,
    follow: output.Follow = False,
    as_json: output.AsJson = False,
) -> None:
    """Show what happened: starts, ends, parks, pauses, windows, limits. With --json one event per line."""
    if audit and unit is not None:
        raise InvalidInput("--audit shows the changes of the whole fleet: leave out --unit")
    with open_home() as home:
        start = after or 0
        if unit is not None:
            found = output.find_unit(home.store, unit)
            news = UnitEvents(home.store, found, find_campaign(home.store, found.campaign)).take
        else:
            if after is None and not audit:
                start = max(0, home.last_event_id() - limit)
            news = output.new_events(home.store, start)

        def take() -> Iterator[StoredEvent]:
            return (event for event in news() if not audit or is_change(event.event))

        events: Iterable[StoredEvent] = (event for event in take() if event.id > start)
        if after is None:
            events = deque(events, maxlen=limit)
        elif not follow:
            events = islice(events, limit)
        while True:
            for event in events:
                _print_event(event, home, audit=audit, as_json=as_json)
            if not follow:
                return
            time.sleep(output.FOLLOW_SECONDS)
            events = take()


def _print_event(stored: StoredEvent, home: Home, *, audit: bool, as_json: bool) -> None:
    event = stored.event
    if as_json:
        output.print_line({**output.event_json(stored), **(output.audit_entry(event) if audit else {})})
    elif audit:
        output.say(output.audit_line(event, home.zone))
    else:
        output.out().print(Text(output.event_line(event, home.zone), style=output.event_style(event)))


# -- why ----------------------------------------------------------------------------------------------

CALL_MARK = "req-"
"""How the ids of calls begin."""
MOST_WAITS = 5
"""Past waits that are shown of a unit that has ended; `events --unit` has all."""


def why_command(unit: output.UnitName, as_json: output.AsJson = False) -> None:
    """Show what holds a unit, since when, until when, and what you can do about it.

    For a call of the gateway, give the x-paceline-request-id of its answer, or an id that the page lists. For an
    account, a pool or a key, give its name or its scope.
    """
    with open_home() as home:
        if unit.startswith(CALL_MARK):
            call = _find_call(home, unit)
            output.print_value(call) if as_json else _print_call(call, home)
            return
        try:
            found = output.find_unit(home.store, unit)
        except UnknownName:
            if (capacity := _capacity_of(home, unit)) is None:
                raise _unknown(home, unit) from None
            output.print_value(capacity) if as_json else _print_capacity(capacity, home)
            return
        campaign = find_campaign(home.store, found.campaign)
        hosts, is_live = read_hosts(home) if split_login(found.account or "")[1] else ([], False)
        first, *others = home.explain_unit(found, campaign, hosts if is_live else ())
        waited: deque[StoredEvent] = deque(maxlen=MOST_WAITS)  # what its campaign waited for while the unit did
        if found.state not in ("todo", "running"):
            events = UnitEvents(home.store, found, campaign).take()
            waited.extend(each for each in events if is_campaign_wait(each.event))
        if as_json:
            more = {"others": others, "waited": [output.event_json(each) for each in waited]}
            output.print_value({**msgspec.to_builtins(first), **{name: value for name, value in more.items() if value}})
            return
        _print_why(first, home)
        for wait in waited:
            output.out().print(Text.assemble(("  before ", "dim"), output.event_line(wait.event, home.zone)))
        for each, before in zip(others, [first, *others], strict=False):
            _print_why(each if each.since != before.since else msgspec.structs.replace(each, since=None), home)


def _unknown(home: Home, name: str) -> UnknownName:
    """Return the error for a name that means nothing here."""
    units = [unit.id for unit in iter_units(home.store, campaign=None, most=output.MOST_SEARCHED)]
    keys = [each.key.name for each in present_keys(home.store.client_keys())]
    others = [*home.settings.accounts, *home.settings.key_pools, *keys]
    missing = f"there is no unit, account, pool or key {name!r:.80}"
    campaign, _, inner = name.partition("/")
    if (hint := did_you_mean(name, units)) and inner:
        return UnknownName(f"{missing}{hint}")
    if of_campaign := [unit for unit in units if inner and unit.startswith(f"{campaign}/")]:
        more = f" and {len(of_campaign) - MOST_LISTED} more" if len(of_campaign) > MOST_LISTED else ""
        return UnknownName(f"{missing}; {campaign} has {', '.join(of_campaign[:MOST_LISTED])}{more}")
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
    """The scopes of an account, a pool or a key, its accounts that fail calls of pools, and budgets by scope.

    `missing` names the variables of keys, by scope, that the running daemon has not.
    """

    scopes: Sequence[ScopeCapacity]
    failures: Sequence[MemberFailure]
    budgets: Mapping[str, SpentBudget]
    missing: Mapping[str, str]


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
        row
        for row in rows
        if row.scope in meant or (row.scope.startswith(of_models) and output.condition_text(row, 0.0))
    ]
    if not found:
        return None
    known = [each for each in read_accounts(home, fleet) if each.scope in meant]
    budgets: dict[str, SpentBudget] = {each.scope: each.daily_budget for each in known if each.daily_budget is not None}
    keys = [each for each in read_keys(home, fleet.now).keys if scope_of_key(each.name) in meant]
    budgets |= {scope_of_key(each.name): each for each in keys if each.budget is not None}
    is_live = live.scopes is not None
    missing = {each.scope: each.key.name for each in known if is_live and each.key and not each.key.is_set}
    return _Capacity(found, [each for each in live.failures if each.scope in meant], budgets, missing)


def _print_capacity(capacity: _Capacity, home: Home) -> None:
    now = time.time()
    failures = {each.scope: output.failure_text(each, now, home.zone) for each in capacity.failures}
    for row in capacity.scopes:
        of = "" if row.limit is None else f" of {row.limit}"
        budget = capacity.budgets.get(row.scope)
        spent = None if budget is None else f"its budget: {output.budget_text(budget, now, home.zone)}"
        name = capacity.missing.get(row.scope)
        key = None if name is None else f"its key: {name} is not set where `paceline up` was started"
        known = (failures.get(row.scope), key, spent, output.condition_text(row, now))
        state = "; ".join(filter(None, known)) or output.open_text(row)
        output.out().print(Text.assemble((f"{row.scope} ", "bold"), output.one_line(state, 400)))
        output.print_fact("  now", f"{row.in_flight}{of} in flight, {row.queued} waiting")


def _print_call(call: GatewayRequest, home: Home) -> None:
    if call.status is None:
        state = "runs" if call.reason is None else f"waits: {call.reason}"
    else:
        state = f"answered with {call.status}{'' if call.reason is None else f': {call.reason}'}"
    output.out().print(Text.assemble((f"{call.id} ", "bold"), output.one_line(state, 400)))
    is_late = call.status is not None and call.retry_at is not None
    output.print_fact("  answer", call.detail)
    output.print_fact("  scope", call.scope or None)
    output.print_fact("  model", call.model)
    output.print_fact("  key", call.key)
    output.print_fact("  again" if is_late else "  until", _moment(call.retry_at, home))
    if call.detail is None:
        output.print_fact("  waited", f"{call.waited_seconds:.2f} s of {call.seconds:.2f} s")
    if call.tokens is not None:
        output.print_fact("  tokens", output.call_tokens_text(call.tokens))
        output.print_fact("  cost", output.cost_text(call.cost))


def _moment(at: float | None, home: Home) -> str | None:
    return None if at is None else moment(at, time.time(), home.zone)


def _print_why(why: Why, home: Home) -> None:
    output.out().print(Text.assemble((f"{why.unit} is {why.state}: ", "bold"), output.one_line(why.detail, 400)))
    output.print_fact("  scope", why.scope)
    output.print_fact("  limit", None if why.learnt is None else output.learnt_text(why.learnt, time.time()))
    output.print_fact("  since", _moment(why.since, home))
    output.print_fact("  until", _moment(why.until, home))
    output.print_fact("  to do", why.hint)


# -- top ----------------------------------------------------------------------------------------------


def top_command() -> None:
    """Watch and control campaigns, capacity, units and events live in the terminal; ? lists the keys.

    It works with and without a running engine. For programs there is [bold]paceline status --json[/bold].
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):  # the toolkit draws on stderr
        raise InvalidInput("top is a live view and needs a terminal; for programs there is `paceline status --json`")
    from paceline.cli.top.app import TopApp  # the other commands need not load a terminal toolkit

    with open_home() as home:
        TopApp(home).run()
