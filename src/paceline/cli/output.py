"""What commands take, and how they print: arguments and options with their completion, and what their names stand for;
consoles, tables and JSON, and values as words.

What is not known is called unknown, never 0.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final
from zoneinfo import ZoneInfo

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from paceline.agents.account import login_on, login_text, shipped_logins
from paceline.core.values.fields import fields_of
from paceline.core.values.scopes import ScopePattern, is_provider_scope
from paceline.core.values.session_output import Tokens
from paceline.core.values.status import LearntLimit, RateStatus, ScopeCondition
from paceline.daemon.home import Home, open_home
from paceline.daemon.times import absolute, clock_time, moment, relative, span_text
from paceline.engine.commands import find_campaign
from paceline.errors import InvalidInput, PacelineError, UnknownName
from paceline.events import Event, is_campaign_wait
from paceline.settings import Settings
from paceline.settings.checks import did_you_mean
from paceline.store import Campaign, Cost, Store, StoredEvent, Unit
from paceline.views.capacity import AccountView, ScopeCapacity, SpentBudget
from paceline.views.gateway_calls import GatewayActivity, GatewayCounts, MemberFailure, SpendSum
from paceline.views.safe_text import printable as printable
from paceline.views.units import iter_units

# -- what a name stands for ---------------------------------------------------------------------------

MOST_SEARCHED = 20_000
"""Units searched for a suggestion; in a store of a million the nearest name is not worth the wait."""


def find_target(store: Store, name: str) -> Unit | Campaign:
    """Return what a command acts on. A name with a slash is a unit; another is a campaign, else a unique unit id."""
    campaigns = {campaign.name: campaign for campaign in store.campaigns()}
    campaign = None if "/" in name else campaigns.get(name)
    if campaign is None:
        is_unit = "/" in name or any(store.unit(f"{each}/{name}") is not None for each in campaigns)
        return find_unit(store, name) if is_unit else find_campaign(store, name)
    units = [f"{each}/{name}" for each in campaigns if store.unit(f"{each}/{name}") is not None]
    if units:
        raise InvalidInput(f"{name!r:.80} is a campaign and also the unit {units[0]}; name the unit as {units[0]}")
    return campaign


def find_unit(store: Store, name: str) -> Unit:
    """Return the unit named `campaign/unit`, or by its own id if only one campaign has it."""
    unit = store.unit(name) if "/" in name else None
    if unit is not None:
        return unit
    ids = [f"{campaign.name}/{name}" for campaign in store.campaigns()]
    found = [unit for each in ids if (unit := store.unit(each)) is not None]
    if len(found) > 1:
        raise InvalidInput(f"several campaigns have a unit {name!r:.80}: {', '.join(unit.id for unit in found)}")
    if found:
        return found[0]
    known = [unit.id for unit in iter_units(store, campaign=None, most=MOST_SEARCHED)]
    hint = did_you_mean(name, known) or did_you_mean(name, [each.partition("/")[2] for each in known])
    raise UnknownName(f"there is no unit {name!r:.80}{hint or '; `paceline units CAMPAIGN` lists them'}")


# -- completion ---------------------------------------------------------------------------------------

MOST_COMPLETED = 200
"""More names than this do not help anyone who presses Tab."""


def complete_campaign(incomplete: str) -> list[str]:
    return _complete(incomplete, lambda home: [campaign.name for campaign in home.store.campaigns()])


def complete_unit(incomplete: str) -> list[str]:
    """Offer campaigns first, as a shell offers folders, then the units of one."""
    campaign, slash, _ = incomplete.partition("/")
    if not slash:
        return [f"{name}/" for name in complete_campaign(incomplete)]
    return _complete(
        incomplete, lambda home: [unit.id for unit in iter_units(home.store, campaign=campaign, most=MOST_SEARCHED)]
    )


def complete_target(incomplete: str) -> list[str]:
    """Offer campaigns, and the units of one behind its slash."""
    return complete_unit(incomplete) if "/" in incomplete else complete_campaign(incomplete)


def complete_scope(incomplete: str) -> list[str]:
    return _complete(incomplete, _scopes)


def _scopes(home: Home) -> list[str]:
    accounts = [account.scope for account in home.settings.accounts.values()]
    campaigns = [f"campaign:{campaign.name}" for campaign in home.store.campaigns()]
    return sorted({*home.settings.limits, *accounts, *campaigns})


def _complete(incomplete: str, names: Callable[[Home], list[str]]) -> list[str]:
    try:
        with open_home(os.environ) as home:
            return [name for name in names(home) if name.startswith(incomplete)][:MOST_COMPLETED]
    except (PacelineError, OSError):
        return []


# -- options ------------------------------------------------------------------------------------------


def argument(metavar: str, help_text: str, **more: Any) -> Any:
    return typer.Argument(metavar=metavar, help=help_text, **more)


def option(metavar: str | None, help_text: str, *names: str, **more: Any) -> Any:
    """Return an option with a value. Without names it has that of the parameter."""
    return typer.Option(*names, metavar=metavar, help=help_text, **more)


def flag(help_text: str, *names: str) -> Any:
    return typer.Option(*names, help=help_text)


PlanFile = Annotated[Path, argument("PLAN", "A plan file: a campaign and its units, in TOML.")]
PlanFiles = Annotated[list[Path], argument("PLAN...", "Plan files: each a campaign and its units, in TOML.")]
Update = Annotated[bool, flag("Also update stored units that differ from the plan.", "--update")]
CampaignName = Annotated[str, argument("CAMPAIGN", "Its name in the plan.", autocompletion=complete_campaign)]
Target = Annotated[
    str,
    argument(
        "CAMPAIGN|UNIT", "A campaign, campaign/unit, or a unit's id if it is unique.", autocompletion=complete_target
    ),
]
Targets = Annotated[
    list[str] | None,
    argument(
        "[CAMPAIGN|UNIT]...",
        "Campaigns, campaign/unit, or ids of units if they are unique.",
        autocompletion=complete_target,
    ),
]
WithUncommitted = Annotated[bool, flag("Also remove workspaces with uncommitted work.", "--force")]
AllCampaigns = Annotated[bool, flag("All campaigns.", "--all")]
UnitName = Annotated[
    str, argument("UNIT", "campaign/unit, or the unit's id if it is unique.", autocompletion=complete_unit)
]
Scope = Annotated[
    str,
    argument(
        "SCOPE",
        "provider, provider/account, .../model or a pattern; sessions, runs, campaign:NAME, agent:NAME, host:NAME.",
        autocompletion=complete_scope,
    ),
]
Follow = Annotated[bool, flag("Keep running and show what is new.", "--follow", "-f")]
AsJson = Annotated[bool, flag("Print JSON, for programs.", "--json")]


# -- consoles, tables and JSON ------------------------------------------------------------------------

WIDEST_PIPE: Final = 10_000
"""Columns of a line in a pipe: programs and files do not fold."""
FOLLOW_SECONDS: Final = 0.3
"""How often `--follow` reads again: it feels immediate, and is a small load on the store."""
STATE_STYLES: Final = {
    "running": "green",
    "done": "dim",
    "parked": "yellow",
    "held": "bold yellow",
    "quarantined": "bold red",
    "unverified": "bold red",
    "cancelled": "dim",
}


def out() -> Console:
    """Return the console for answers. It leaves markup and numbers as they are."""
    return Console(highlight=False, markup=False, soft_wrap=True)


def say(message: str, style: str = "") -> None:
    out().print(Text(printable(message), style=style))


def print_fact(name: str, value: str | None, width: int = 9) -> None:
    """Print a name and a value on one line; nothing if the value is not known."""
    if value is not None:
        out().print(Text.assemble((name.ljust(width), "dim"), one_line(value, 300)))


def one_line(text: str | None, longest: int = 200) -> str:
    """Return text as a single line for a table, cut at `longest` characters."""
    line = " ".join(printable(text or "").split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def print_value(value: object) -> None:
    """Print JSON for programs."""
    encoded = msgspec.json.encode(value)
    sys.stdout.write(msgspec.json.format(encoded, indent=2).decode() + "\n")


def print_answer(value: object, text: str, *, as_json: bool) -> None:
    """Print a value for programs, or else a sentence for people."""
    print_value(value) if as_json else say(text)


def print_line(value: object) -> None:
    """Print one JSON value on one line and flush, for streams."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """Return a table without a frame, which also reads well in a pipe."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def print_table(made: Table) -> None:
    """Print a table: folded at the edge of a terminal, as wide as needed in a pipe."""
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=WIDEST_PIPE)
        console = Console(highlight=False, markup=False, width=max(1, console.measure(made).maximum))
    for segments in console.render_lines(made, pad=False):
        line = Text.assemble(*((segment.text, segment.style or "") for segment in segments))
        line.rstrip()
        console.print(line, soft_wrap=True)


# -- work ---------------------------------------------------------------------------------------------

UNKNOWN = "unknown"
NOTHING = "–"
_CENT = 0.01


def left_text(count: int) -> str:
    """Return the sentence about workspaces that are on other machines."""
    if count == 1:
        return "1 workspace is on another host, which removes it once it is there"
    return f"{count} workspaces are on other hosts, which remove them once they are there"


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def dollars(amount: float) -> str:
    """Return an amount with cents, or with two digits if it is less than a cent."""
    return f"${amount:,.2f}" if amount >= _CENT or amount == 0 else f"${amount:.2g}"


def cost_text(cost: Cost, *, is_used: bool = True) -> str:
    """Return what was billed and what is imputed. `is_used`: whether there was anything to pay for."""
    parts = []
    if cost.billed is not None:
        parts.append(f"{dollars(cost.billed)} billed")
    if cost.imputed is not None:
        parts.append(f"{dollars(cost.imputed)} imputed")
    return " + ".join(parts) or (UNKNOWN if is_used else NOTHING)


def tokens_text(tokens: Tokens | None) -> str:
    """Return the number of tokens with its parts."""
    if tokens is None:
        return UNKNOWN
    parts = [f"{tokens.input:,} input", f"{tokens.output:,} output"]
    if tokens.cache_read or tokens.cache_write:
        parts += [f"{tokens.cache_read:,} cache read", f"{tokens.cache_write:,} cache write"]
    return f"{tokens.total:,} ({', '.join(parts)})"


def lost_text(lost: int, estimated: int) -> str:
    """Return the context that was paid again after parks, and how much of it is estimated."""
    part = "" if not estimated else ", estimated" if estimated == lost else f", {estimated:,} of them estimated"
    return f"{lost:,} tokens of context paid again{part}"


def change_text(files: int | None, added: int | None, removed: int | None) -> str:
    """Return the size of a change."""
    if files is None:
        return UNKNOWN
    lines = "" if added is None or removed is None else f", +{added:,} −{removed:,} lines"
    return f"{files:,} file{'' if files == 1 else 's'}{lines}"


# -- limits -------------------------------------------------------------------------------------------

SOURCES = {
    "field": "a structured field",
    "header": "a response header",
    "text": "a sentence",
    "backoff": "the client's own backoff",
}
"""Where a signal was read."""
UNLIMITED = "none"


class LimitLine(ScopeCondition, frozen=True, kw_only=True):
    """One scope or pattern, with the keys that `limits --json` prints.

    `source` is where `configured` comes from. A pattern has no cooldown of its own.
    """

    source: str
    effective: int | None
    cooldown: float | None
    state: str


def limit_line(row: ScopeCapacity, settings: Settings, now: float) -> LimitLine:
    """Return the row as `limits` prints it."""
    warning = None if row.configured is None else unused_account(settings, row.scope)
    return LimitLine(
        **fields_of(ScopeCondition, row),
        source=source_text(row, settings),
        effective=row.limit,
        cooldown=row.cooldown if ScopePattern(row.scope).is_exact else None,
        state="; ".join(filter(None, (condition_text(row, now), warning))),
    )


def unused_account(settings: Settings, scope: str) -> str | None:
    """Return a warning about a scope or pattern of an account that is not configured, which no campaign can use."""
    provider, _, rest = scope.partition("/")
    account = rest.partition("/")[0]
    known = {each.scope for each in settings.accounts.values()} | {each.scope for each in shipped_logins().values()}
    if not account or "*" in (provider, account) or not is_provider_scope(scope) or f"{provider}/{account}" in known:
        return None
    return f"no configured account is {provider}/{account}: only programs that name this scope themselves use it"


def source_text(row: ScopeCapacity, settings: Settings) -> str:
    """Return where the configured limit comes from. A file is named by its path."""
    if row.configured_source == "file" and row.configured_by is not None:
        return settings.limits[row.configured_by].source
    return row.configured_source


def open_text(row: ScopeCapacity) -> str:
    """Return the state of a scope that holds nothing back. The calls of a key also pass the scopes of an account."""
    waits_elsewhere = row.kind == "key" and row.queued > 0
    return "open; its calls wait for the limits of their account" if waits_elsewhere else "open"


def condition_text(row: ScopeCapacity, now: float) -> str:
    """Return what a person should know about the scope: held, paused, closed, reduced."""
    parts = []
    if row.held is not None:
        parts.append(f"held: {row.held} (`paceline restore {row.scope}` once it is fixed)")
    if row.paused_until is not None:
        cause = f" ({row.paused_reason})" if row.paused_reason is not None else ""
        parts.append(f"paused{cause}, resumes {relative(row.paused_until - now)}")
    parts += [rate_text(rate) for rate in row.rates]
    if row.pace is not None:
        parts.append(f"{row.pace.interval:.2g} s apart: {row.pace.reason} (`paceline restore {row.scope}`)")
    if row.paced_until is not None:
        parts.append(f"next {relative(row.paced_until - now)}")
    for window in row.windows:
        if window.state != "open":
            reset = f", reset {relative(window.resets_at - now)}" if window.resets_at is not None else ""
            probe = f", tried {relative(window.probe_at - now)}" if window.probe_at is not None else ""
            late = f", was to reset {relative(window.missed_at - now)}" if window.missed_at is not None else ""
            parts.append(f"{window.name} window {window.state}{late}{reset}{probe}")
        elif window.used_ratio is not None:
            parts.append(f"{window.name} window {window.used_ratio:.0%} used")
        elif window.estimated_ratio is not None:
            parts.append(f"{window.name} window about {window.estimated_ratio:.0%} used")
    if row.cooling:
        parts.append(f"{row.cooling} released {'slot' if row.cooling == 1 else 'slots'} still cooling down")
    if row.learnt is not None:
        parts.append(learnt_text(row.learnt, now))
    return "; ".join(parts)


def rate_text(rate: RateStatus) -> str:
    """Return a rate in words: what is used of it, in which time, and where it comes from."""
    span = "" if rate.seconds is None else "/min" if round(rate.seconds) == 60 else f" in {rate.seconds:.3g} s"
    source = "" if rate.source == "set" else f" ({rate.reason})"
    return f"{rate.used:,.0f} of {rate.limit:,.0f} {rate.kind}{span}{source}"


def learnt_text(learnt: LearntLimit, now: float) -> str:
    """Return what refusals taught about a limit, in one sentence: what is held, why, and when more is tried."""
    of = "" if learnt.of is None else f" of {learnt.of}"
    refused = "after a 429"
    if learnt.refused_level is not None and learnt.refused_at is not None:
        refused = f"refused at {learnt.refused_level} {relative(learnt.refused_at - now)}"
    if learnt.next_try_at is None:
        return f"held {learnt.held}{of}: {refused}; {learnt.reason}"
    when = f"next because {learnt.reason}"
    if learnt.next_try_at > now:
        when = f"{relative(learnt.next_try_at - now)} if nothing is refused until then"
    return f"held {learnt.held}{of}: {refused}; {learnt.next_level} is tried {when}"


def limit_text(limit: int | None) -> str:
    return UNLIMITED if limit is None else str(limit)


# -- calls of the gateway -----------------------------------------------------------------------------


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
        parts.append(f"{cost_today_text(activity)} today")
    return ", ".join(parts)


def cost_today_text(activity: GatewayActivity) -> str:
    """Return what the calls of this day have cost. No known cost is no cost only where there was no call."""
    cost = activity.cost_today
    if cost == Cost() and activity.requests_today:
        return "cost unknown"
    more = " or more" if activity.unpriced_today else ""
    return f"{dollars((cost.billed or 0.0) + (cost.imputed or 0.0))}{more}"


def count_text(count: int) -> str:
    """Return a large number with three digits: `812`, `12.4k`, `3.05M`."""
    if count < _THOUSAND:
        return str(count)
    value, unit = (count / _MILLION, "M") if count >= _MILLION else (count / _THOUSAND, "k")
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}{unit}"


def call_tokens_text(tokens: Tokens) -> str:
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
        return f"{since}; the {pools} may use other accounts for them"
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


def budget_text(key: SpentBudget, now: float, zone: ZoneInfo) -> str:
    """Return what a key or an account has spent of its budget: `$3.10 of $5/day`; empty without one."""
    if key.budget is None:
        return ""
    text = f"{dollars(key.spent or 0.0)} of {key.budget}"
    if not key.is_reached:
        return text
    return f"{text}, reached" + ("" if key.resumes_at is None else f"; continues {moment(key.resumes_at, now, zone)}")


# -- events -------------------------------------------------------------------------------------------

PAGE_EVENTS = 1000
"""Events per read: a pipe gets its first lines at once, and a long history needs few reads."""


def new_events(store: Store, after: int) -> Callable[[], Iterator[StoredEvent]]:
    """Return what yields the events of a store since its last call, page by page; at first those after this id."""

    def take() -> Iterator[StoredEvent]:
        nonlocal after
        while page := store.events(after=after, limit=PAGE_EVENTS):
            for event in page:
                after = event.id
                yield event

    return take


EVENT_STYLES = {
    "unit.done": "green",
    "unit.failed": "red",
    "unit.quarantined": "bold red",
    "unit.unverified": "bold red",
    "unit.held": "bold yellow",
    "unit.parked": "yellow",
    "account.held": "bold red",
    "campaign.paused": "bold yellow",
    "budget.warning": "yellow",
    "budget.reached": "bold yellow",
    "window.closed": "yellow",
    "window.reopened": "green",
    "scope.paused": "yellow",
}


_IN_LINE = ("ticket", "owner", "action", "target")
"""Fields that say nothing to people, or that the beginning of the line has."""
SHORT = 1000.0
"""Smaller numbers are shown with three digits: they are waits and ratios, which are never more precise."""


def event_style(event: Event) -> str:
    return EVENT_STYLES.get(event.name, "")


def event_line(event: Event, zone: ZoneInfo) -> str:
    """Return an event as one line.

    `03:00:12 parked docs/a: the quota window is spent, again at 05:00:00 (in 2 h 00 min)`
    """
    what, subject = _what_and_subject(event)
    detail = _detail(event, zone)
    line = f"{clock_time(event.at, zone)} {what} {subject}".rstrip()
    return one_line(f"{line}: {detail}" if detail else line, longest=400)


def wait_words(detail: str, retry_at: float | None, now: float) -> str:
    """Return what is waited for, and how long: `sessions at its limit (4/4), again in 2 min`."""
    until = f", again {relative(retry_at - now)}" if retry_at is not None and retry_at > now else ""
    return one_line(detail, 200) + until


def _what_and_subject(event: Event) -> tuple[str, str]:
    fields = event.fields
    if event.name == "slot.deferred":
        return "waits", _waiting(event)
    if "action" in fields:
        kind = {"control.token": " token", "control.host": " host"}.get(event.name, "")
        return f"{fields['action']}{kind}", str(fields.get("target", ""))
    what = event.name.replace("unit.", "").replace(".", " ").replace("_", " ")
    return what, (event.unit if event.name.startswith(("unit.", "workspace.")) else event.scope) or ""


def audit_entry(event: Event) -> dict[str, str]:
    """Return a change as an audit shows it: who made it, what it was, and what it was made to."""
    what, target = _what_and_subject(event)
    return {
        "by": str(event.fields.get("by", "")),
        "what": what.removeprefix("control "),
        "target": target or str(event.fields.get("unit", "")),
    }


def audit_line(event: Event, zone: ZoneInfo) -> str:
    """Return a change as one line.

    `2026-11-16 03:00:12 UTC alice@box1 (cli): limit anthropic/max-1 3`
    """
    entry = audit_entry(event)
    value = next((event.fields[name] for name in ("limit", "seconds") if name in event.fields), "")
    words = (entry["what"], entry["target"], UNLIMITED if value is None else str(value))
    line = " ".join(word for word in words if word)
    return one_line(f"{absolute(event.at, zone)} {entry['by'] or 'unknown'}: {line}", longest=400)


def _detail(event: Event, zone: ZoneInfo) -> str:
    fields = event.fields
    if event.name.startswith("unit."):
        return _unit_detail(event, zone)
    if event.name == "slot.deferred":
        retry_at = fields.get("retry_at")
        return wait_words(
            str(fields.get("detail", "")), retry_at if isinstance(retry_at, int | float) else None, event.at
        )
    if event.name.startswith("budget."):
        return _budget_detail(event, zone)
    known = {name: value for name, value in fields.items() if value is not None and name not in _IN_LINE}
    return ", ".join(
        f"{name.replace('_', ' ')} {_field_text(name, value, event.at, zone)}" for name, value in known.items()
    )


def _waiting(event: Event) -> str:
    """Return who waits: a campaign, with the login that its units wait for, or a program in a scope."""
    if not is_campaign_wait(event):
        return event.scope or ""
    login = login_on(str(event.fields.get("account") or ""), str(event.fields.get("host") or ""))
    return f"{event.fields['campaign']} {login_text(login)}".rstrip()


def _unit_detail(event: Event, zone: ZoneInfo) -> str:
    fields = event.fields
    if event.name in ("unit.started", "unit.resumed"):
        where = f"on {event.scope}" if event.scope else ""
        session = f", conversation {fields['session_id']}" if fields.get("session_id") else ""
        return f"{where}{session}"
    if event.name in ("unit.worked", "unit.done"):
        return ""
    if event.name == "unit.checked":
        return _check_detail(fields)
    if event.name == "unit.delivered":
        return ", ".join(f"{name} {fields[name]}" for name in ("branch", "patch") if fields.get(name))
    reason, resume_at = str(fields.get("reason") or ""), fields.get("resume_at")
    if isinstance(resume_at, int | float):
        reason += f", again at {_field_text('resume_at', resume_at, event.at, zone)}"
    return reason


def _budget_detail(event: Event, zone: ZoneInfo) -> str:
    """Return what is spent of a budget: `$4.02 of $5/day, continues 00:00:00 (in 3 h 20 min)`."""
    spent, resumes_at = event.fields.get("spent"), event.fields.get("resumes_at")
    text = f"{dollars(spent) if isinstance(spent, int | float) else UNKNOWN} of {event.fields.get('budget')}"
    is_reached = event.name == "budget.reached" and resumes_at is not None
    return f"{text}, continues {_field_text('resumes_at', resumes_at, event.at, zone)}" if is_reached else text


def _check_detail(fields: Mapping[str, object]) -> str:
    """Return how a check ended. A reason says all: it ran too long, or could not do its work."""
    if reason := fields.get("reason"):
        return str(reason)
    exit_code, seconds = fields.get("exit_code"), fields.get("seconds")
    ending = "passed" if exit_code == 0 else f"failed with exit code {exit_code}"
    return f"{ending} after {span_text(seconds)}" if isinstance(seconds, int | float) else ending


def _field_text(name: str, value: object, seen_at: float, zone: ZoneInfo) -> str:
    is_moment = name.endswith("_at") or name == "until"
    if is_moment and isinstance(value, int | float):
        return f"{clock_time(value, zone)} ({relative(value - seen_at)})"
    return f"{value:.3g}" if isinstance(value, float) and abs(value) < SHORT else str(value)


def event_json(stored: StoredEvent) -> dict[str, object]:
    event = stored.event
    return {
        "id": stored.id,
        "at": event.at,
        "name": event.name,
        "scope": event.scope,
        "unit": event.unit,
        "fields": event.fields,
    }
