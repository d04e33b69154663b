"""What `top` reads, and how it looks: the home once a second, and one unit in detail, as cells and lines of text.

The values are the views of `status`, `list` and `limits`. Text from outside is made harmless here: it never becomes
markup. Never here: anything that changes the store.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from zoneinfo import ZoneInfo

import msgspec
from rich.text import Text

from paceline.agents.account import login_text, split_login
from paceline.cli import output
from paceline.cli.top.table import Column, Row
from paceline.core import ScopeStatus, WindowStatus
from paceline.core.values.scopes import RUNS, is_provider_scope, path_scopes
from paceline.daemon.contact import live_spend, read_accounts, read_keys, read_live
from paceline.daemon.home import Home
from paceline.daemon.times import clock_time
from paceline.engine.capacity.governor_state import OfflineState
from paceline.engine.dispatch.ticket_queues import session_scopes
from paceline.events import Event
from paceline.store import Campaign, StoredEvent, Unit
from paceline.views.capacity import AccountView, FleetState, KeyView, ScopeCapacity, capacity_rows, limit_rows
from paceline.views.gateway_calls import GatewayActivity, SpendSum, spend_since, spend_view
from paceline.views.status import (
    CampaignView,
    CompletionRate,
    StatusSummary,
    Throughput,
    campaign_views,
    completion_rate,
    read_status_summary,
)
from paceline.views.transcript import NO_OUTPUT, last_output, transcript_provider
from paceline.views.units import phase_of, unit_detail, unit_history
from paceline.views.why import Wait, Why, stored_waits, wait_rows

KEPT_EVENTS = 1000
"""As far back as a person scrolls."""


class TopSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything but the units, which are read page by page."""

    at: float
    status: StatusSummary
    rate: CompletionRate
    gateway: GatewayActivity | None
    """None if the daemon did not answer."""
    limits: Mapping[str, int | None]
    """The configured limit of each scope."""
    campaigns: Sequence[Row]
    scopes: Sequence[Row]
    keys: Sequence[Row]
    events: Sequence[Row]
    """Events since the last snapshot."""

    @property
    def is_gateway_alone(self) -> bool:
        """Whether the home has no campaign, and its gateway is in use."""
        return not self.campaigns and (bool(self.keys) or self.gateway not in (None, GatewayActivity()))


def snapshot_reader(home: Home) -> Callable[[float], TopSnapshot]:
    """Return what reads the home as it is at a time. It remembers which events it has returned."""
    throughput = Throughput(home.store)
    news = output.new_events(home.store, max(0, home.last_event_id() - KEPT_EVENTS))

    def read(now: float) -> TopSnapshot:
        throughput.catch_up(now)
        offline = home.offline_state(now)
        live = read_live(home)
        fleet = home.read_fleet(now, offline, scopes=live.scopes)
        waits = wait_rows(stored_waits(home.store), fleet.campaigns)
        notes = {each.name: _note(fleet, each, _scopes_of(home, offline, each), waits) for each in fleet.campaigns}
        accounts = {account.scope: account for account in read_accounts(home, fleet)}
        shown = _shown_scopes(fleet, accounts)
        queues = _queues(home, offline, live.gateway)
        failures = {failure.scope: output.failure_text(failure, now, home.zone) for failure in live.failures}
        return TopSnapshot(
            at=now,
            status=read_status_summary(fleet, home.leader_process(), live.counts),
            rate=completion_rate(fleet, throughput),
            gateway=live.gateway,
            limits={row.scope: row.configured for row in shown},
            campaigns=[
                campaign_row(each, notes[each.name], now, home.zone) for each in campaign_views(fleet, throughput)
            ],
            scopes=[
                scope_row(row, queues.get(row.scope, 0), failures.get(row.scope), accounts.get(row.scope), home, now)
                for row in shown
            ],
            keys=list(_key_rows(home, now)),
            events=[event_row(each, home.zone) for each in news()],
        )

    return read


# -- what blocks a campaign ------------------------------------------------------------------------


def _scopes_of(home: Home, offline: OfflineState, campaign: Campaign) -> list[str]:
    """Return every scope that a session of the campaign could occupy, those of providers last."""
    ids = offline.accounts.ids_of(campaign)
    scopes = [scope for each in ids for scope in session_scopes(campaign, offline.accounts.of(campaign, each))]
    return list(dict.fromkeys(scopes))


def _note(fleet: FleetState, campaign: Campaign, scopes: list[str], waits: list[Wait]) -> str:
    known: list[ScopeStatus] = [fleet.scopes[scope] for scope in scopes if scope in fleet.scopes]
    held = next((status for status in known if status.held), None)
    if held is not None:
        return f"{held.scope} is held: {held.held}"
    counts = fleet.counts_of(campaign.name)
    if campaign.state != "active" or counts.todo == counts.parked:
        return ""
    wait = next((each for each in waits if each.campaign == campaign.name), None)
    return "" if wait is None else output.wait_words(wait.detail, wait.retry_at, fleet.now)


# -- capacity --------------------------------------------------------------------------------------


def _shown_scopes(fleet: FleetState, accounts: Collection[str]) -> list[ScopeCapacity]:
    """Return the scopes that `limits` lists, and every account: those of providers, then those of keys, then others."""
    rows = {row.scope: row for row in limit_rows(fleet)}
    rows |= {row.scope: row for row in capacity_rows(fleet) if row.scope in accounts and row.scope not in rows}
    # Scopes of providers, then patterns of them, keys, and the machine's own.
    return sorted(
        rows.values(),
        key=lambda row: (not is_provider_scope(row.scope), "*" in row.scope, row.kind != "key", row.scope),
    )


def _queues(home: Home, offline: OfflineState, gateway: GatewayActivity | None) -> dict[str, int]:
    """Return how many units could start in each scope if it had room, and how many calls wait there."""
    queues: dict[str, int] = {}
    for (name, bound_to), units in home.store.claimable().items():
        campaign = offline.campaigns.get(name)
        if campaign is None or campaign.state != "active":  # one that was added since is in the next snapshot
            continue
        accounts = campaign.accounts if bound_to is None else (split_login(bound_to)[0],)
        for scope in _scopes_of(home, offline, msgspec.structs.replace(campaign, accounts=accounts)):
            queues[scope] = queues.get(scope, 0) + units
    for scope, calls in ({} if gateway is None else gateway.waiting_by_scope).items():
        for part in (RUNS, *path_scopes(scope)):
            queues[part] = queues.get(part, 0) + calls
    return queues


# -- one unit -----------------------------------------------------------------------------------------


LONGEST_PROMPT = 2000


def inspect_unit(home: Home, unit_id: str, now: float) -> Text:
    """Return all about the unit, as far as a person reads it, or that it was deleted."""
    unit = home.store.unit(unit_id)
    campaign = next((each for each in home.store.campaigns() if unit is not None and each.name == unit.campaign), None)
    if unit is None or campaign is None:
        return plain(f"{unit_id} was deleted")
    folder = home.spool().folder(unit.attempt_id) if unit.attempt_id is not None else None
    provider = transcript_provider(home.store, home.settings, unit)
    screen = "" if folder is None else last_output(folder, provider, home.zone)
    detail, phase = unit_detail(unit, screen=screen, history=unit_history(home.store, unit_id)), phase_of(unit)
    text = Text.assemble((output.one_line(unit.id), "bold"), " ", (phase, output.STATE_STYLES.get(phase, "")))
    _add_fact(text, "tries", f"{detail.tries}, attempts charged {detail.attempts}, parks {detail.parks}")
    _add_fact(text, "account", detail.account)
    _add_fact(text, "host", detail.host)
    _add_fact(text, "conversation", detail.session_id)
    _add_fact(text, "exit code", None if detail.exit_code is None else str(detail.exit_code))
    for why in home.explain_unit(unit, campaign):
        _add_why(text, why, now, home.zone)
    _add_section(text, "prompt", output.printable(detail.prompt[:LONGEST_PROMPT]))
    events = [Event(each.name, each.at, each.scope, unit.id, each.fields) for each in detail.history]
    _add_section(text, "events", "\n".join(output.event_line(event, home.zone) for event in events))
    if detail.attempt is not None:
        printed = f"it {NO_OUTPUT}" if folder is None else detail.screen or "nothing was printed"
        _add_section(text, "last screen", printed)
    return text


def _add_why(text: Text, why: Why, now: float, zone: ZoneInfo) -> None:
    _add_fact(text, "why", why.detail)
    _add_fact(text, "where", why.scope)
    _add_fact(text, "limit", None if why.learnt is None else output.learnt_text(why.learnt, now))
    if why.since is not None:
        _add_fact(text, "since", f"{clock(why.since, now, zone)}, {countdown(now - why.since)} ago")
    if why.until is not None:
        _add_fact(text, "until", f"{clock(why.until, now, zone)}, in {countdown(why.until - now)}")
    _add_fact(text, "to do", why.hint)


def _add_fact(text: Text, name: str, value: str | None) -> None:
    if value:
        text.append(f"\n  {name:<13}", style="dim").append(output.one_line(value, 400))


def _add_section(text: Text, title: str, body: str) -> None:
    if body.strip():
        text.append(f"\n\n{title}\n", style="bold").append(body)


BAR_CELLS = 8
DAY_SECONDS = 86400.0
NO_LIMIT = "∞"
START = "paceline run PLAN"

CAMPAIGN_COLUMNS = (
    Column(title="campaign", least=12),
    Column(title="progress", rank=3),
    Column(title="done", right=True),
    Column(title="active", right=True),
    Column(title="wait", right=True, rank=2),
    Column(title="parked", right=True, rank=1),
    Column(title="fail", right=True),
    Column(title="prio", right=True, rank=4),
    Column(title="ETA", right=True),
    Column(title="what holds it", least=20),
)
CAPACITY_COLUMNS = (
    Column(title="scope", least=20),
    Column(title="in flight", right=True),
    Column(title="limit", right=True),
    Column(title="queue", right=True),
    Column(title="cooldown", right=True, rank=1),
    Column(title="from", rank=2),
    Column(title="pause, windows, notices", least=26),
)
KEY_COLUMNS = (
    Column(title="key", least=12),
    Column(title="calls", right=True),
    Column(title="tokens", right=True),
    Column(title="cost", right=True),
    Column(title="weight", right=True, rank=1),
    Column(title="budget", least=16),
)
UNIT_COLUMNS = (
    Column(title="unit", least=20),
    Column(title="state"),
    Column(title="attempts", right=True, rank=2),
    Column(title="tries", right=True, rank=1),
    Column(title="account", rank=3),
    Column(title="since", right=True),
    Column(title="reason", least=26),
)
EVENT_COLUMNS = (Column(title="", least=20),)


def plain(text: object, style: str = "") -> Text:
    """Return one line of plain text."""
    return Text(output.one_line(str(text)), style=style, no_wrap=True)


# -- time ------------------------------------------------------------------------------------------


def clock(at: float, now: float, zone: ZoneInfo) -> str:
    """Return a time as `14:30`, with the day if it is more than a day away."""
    return clock_time(at, zone, "%H:%M" if abs(at - now) < DAY_SECONDS else "%a %d %b %H:%M")


def countdown(seconds: float) -> str:
    """Return a span as `0:12`, `1:02:03` or `3 d 04 h`: it keeps its width while it counts down."""
    left = max(0, round(seconds))
    if left >= 2 * DAY_SECONDS:
        return f"{left // 86400} d {left // 3600 % 24:02d} h"
    hours, minutes = left // 3600, left // 60 % 60
    return f"{hours}:{minutes:02d}:{left % 60:02d}" if hours else f"{minutes}:{left % 60:02d}"


# -- the strip -------------------------------------------------------------------------------------


Fact = tuple[str, str, str]
"""A name, a value and the style of the value."""


def strip(snapshot: TopSnapshot, zone: ZoneInfo, trouble: str | None) -> Text:
    """Return two lines: the engine and its counts, then the next resume, the rate and the ETA, or an error."""
    state, is_alone = snapshot.status.engine.state, snapshot.is_gateway_alone
    head = Text("○ no engine", "bold yellow")
    if state != "stopped":
        head = Text(f"● {state}", "bold green" if state == "leading" else "bold yellow")
    first = _call_facts(snapshot.gateway) if is_alone else _unit_facts(snapshot.status)
    lines = Text.assemble(head, "  ", _line(first), "\n", no_wrap=True, overflow="ellipsis")
    if trouble is not None:
        return lines.append_text(plain(trouble, "bold red"))
    second = _calls_today(snapshot.gateway) if is_alone else _outlook(snapshot, zone)
    return lines.append_text(_line([("now", clock_time(snapshot.at, zone), ""), *second]))  # the end may be cut


def _line(facts: Iterable[Fact]) -> Text:
    return Text("  ").join(Text.assemble((f"{name} ", "dim"), (value, style)) for name, value, style in facts)


def _unit_facts(status: StatusSummary) -> list[Fact]:
    pool, units = status.pool, status.units
    failed = units.unverified + units.quarantined + units.held
    return [
        ("pool", NO_LIMIT if pool.sessions is None else str(pool.sessions), "bold"),
        ("running", f"{pool.running:,}", "bold green" if pool.running else ""),
        ("waiting", f"{pool.waiting:,}", ""),
        ("parked", f"{pool.parked:,}", "yellow" if pool.parked else ""),
        ("done", f"{units.done:,}/{sum(msgspec.structs.astuple(units)):,}", ""),
        ("failed", f"{failed:,}", "bold red" if failed else ""),
    ]


def _call_facts(activity: GatewayActivity | None) -> list[Fact]:
    """Return the figures of calls, where there is nothing but calls."""
    if activity is None:
        return [("the daemon does not answer", "", "yellow")]
    refused = activity.refused_per_minute
    return [
        ("calls in flight", f"{activity.in_flight:,}", "bold green" if activity.in_flight else ""),
        ("waiting", f"{activity.waiting:,}", "yellow" if activity.waiting else ""),
        ("a minute", f"{activity.per_minute:,}", ""),
        ("refused", f"{refused:,}", "bold red" if refused else ""),
    ]


def _calls_today(activity: GatewayActivity | None) -> Iterator[Fact]:
    if activity is not None:
        tokens = output.count_text(activity.tokens_today.total)
        yield "today", f"{activity.requests_today:,} calls, {tokens} tokens, {output.cost_today_text(activity)}", ""


def _outlook(snapshot: TopSnapshot, zone: ZoneInfo) -> Iterator[Fact]:
    status, now = snapshot.status, snapshot.at
    if status.engine.state == "stopped":
        yield "start one with", START, ""
    if (at := status.next_resume_at) is not None:
        yield "next resume", f"{clock(at, now, zone)} in {countdown(at - now)}", ""
    yield "done/h", f"{snapshot.rate.per_hour:,}", ""
    eta = snapshot.rate.eta_after(status.next_resume_at)
    if eta is not None and status.engine.state != "stopped":
        yield "ETA", f"{clock(eta, now, zone)} in {countdown(eta - now)}", ""
    if snapshot.gateway is not None and snapshot.gateway != GatewayActivity():
        yield "calls", output.activity_text(snapshot.gateway), ""


# -- campaigns -------------------------------------------------------------------------------------


def campaign_row(campaign: CampaignView, note: str, now: float, zone: ZoneInfo) -> Row:
    counts, total = campaign.units, campaign.units.total
    failed = counts.stopped
    cells = (
        _campaign_name(campaign),
        bar(counts.done / total if total else 0.0, "green"),
        plain(f"{counts.done:,}/{total:,}"),
        plain(counts.running or "", "bold green"),
        plain(f"{counts.todo - counts.parked:,}"),
        plain(f"{counts.parked:,}", "yellow" if counts.parked else ""),
        plain(f"{failed:,}", "bold red" if failed else ""),
        plain(campaign.priority),
        plain("–" if campaign.eta is None else clock(campaign.eta, now, zone)),
        plain(campaign.quota or note, "yellow" if campaign.quota else ""),
    )
    return Row(campaign.name, cells)


def _campaign_name(campaign: CampaignView) -> Text:
    state = campaign.shown_state
    name = plain(campaign.name, "bold" if state == "active" else "")
    return name if state == "active" else name.append(f" {state}", "yellow" if state == "paused" else "dim")


def bar(ratio: float, style: str) -> Text:
    filled = min(BAR_CELLS, max(0, round(ratio * BAR_CELLS)))
    return Text.assemble(("█" * filled, style), ("░" * (BAR_CELLS - filled), "dim"))


# -- capacity --------------------------------------------------------------------------------------


def scope_row(
    row: ScopeCapacity, queue: int, failure: str | None, account: AccountView | None, home: Home, now: float
) -> Row:
    """Return a scope. `queue`: units that could start there, and waiting calls. `failure`: why pools cannot use it."""
    queue = row.queued if row.kind == "key" else queue
    cooldown = row.cooldown if is_provider_scope(row.scope) else None
    parts = [] if failure is None else [plain(failure, "bold red")]
    if account is not None:
        parts += [plain(note, "yellow") for note in output.account_notes(account, now, home.zone)]
    cells = (
        plain(row.scope, "bold"),
        plain(f"{row.in_flight}/{_number(row.limit)}", "green" if row.in_flight else ""),
        plain(_limits(row), "yellow" if row.limit != row.configured else ""),
        plain(f"{queue:,}" if queue else ""),
        plain("" if cooldown is None else f"{cooldown * 1000:.0f} ms"),
        plain(output.source_text(row, home.settings).rpartition("/")[2]),
        Text("; ").join([*parts, *_conditions(row, now, home.zone)]),
    )
    return Row(row.scope, cells)


def _number(limit: int | None) -> str:
    return NO_LIMIT if limit is None else str(limit)


def _limits(row: ScopeCapacity) -> str:
    """Return the configured limit, and the effective one if it differs."""
    if row.limit == row.configured:
        return _number(row.configured)
    return f"{_number(row.configured)} now {_number(row.limit)}"


def _conditions(row: ScopeCapacity, now: float, zone: ZoneInfo) -> Iterator[Text]:
    if row.paused_until is not None:
        yield plain(f"paused {countdown(row.paused_until - now)}", "bold red")
    if row.notice is not None:
        yield plain(f"{row.notice} (r)", "bold red" if row.held else "yellow")
    if row.cooling:
        yield plain(f"{row.cooling} cooling")
    for window in row.windows:
        yield _window(window, now, zone)


def _window(window: WindowStatus, now: float, zone: ZoneInfo) -> Text:
    """Return the name of a window, its use, its reset, and the source of that."""
    line = plain(window.name).append(" ")
    used = 1.0 if window.state in ("closed", "probing") else window.used_ratio
    if used is not None:
        line.append_text(bar(used, "red" if used >= 0.9 else "green")).append(f" {used:.0%}")
    match window.state:
        case "closed":
            line.append(" spent", style="bold red")
        case "probing":
            line.append(" a canary tries it", style="bold cyan")
        case "wave":
            line.append(" reopens in a wave", style="cyan")
    if window.missed_at is not None:
        line.append(f" did not reset {clock(window.missed_at, now, zone)},")
    if window.resets_at is not None:
        line.append(f" resets {clock(window.resets_at, now, zone)} in {countdown(window.resets_at - now)}")
    tried = window.probe_at if window.state == "closed" else None
    # The next look is worth a time of its own, unless it is the one after a reset, which comes seconds later.
    if tried is not None and (window.resets_at is None or abs(tried - window.resets_at) > 60.0):
        line.append(f", tried {clock(tried, now, zone)}")
    if window.source is not None:
        line.append(" ").append_text(plain(f"(said by {output.SOURCES.get(window.source, window.source)})", "dim"))
    return line


# -- keys ------------------------------------------------------------------------------------------


def _key_rows(home: Home, now: float) -> Iterator[Row]:
    """Yield the keys that work and their use in 30 days, then what was spent with others.

    Paceline's own token is a key without a name.
    """
    known = {each.name: each for each in read_keys(home, now).keys}
    first = spend_since(None, now)
    spent = live_spend(home, "key", first, None) or spend_view(home.store.spend(since=first), first, ("key",))
    sums = {row.key or "": row for row in spent.rows}
    for name in (*sorted(known), *sorted(sums.keys() - known.keys())):
        key, used = known.get(name), sums.get(name)
        title = plain(name or "(own token)", "bold" if key is not None else "dim")
        if key is None and name:
            title.append(" revoked", "dim")
        cells = (
            title,
            plain(f"{used.requests:,}" if used else "0"),
            plain(output.count_text(used.tokens.total) if used else "0"),
            plain(output.dollars(0.0) if used is None else _spent(used)),
            plain("" if key is None else f"{key.weight:g}"),
            _budget(key, now, home.zone),
        )
        yield Row(name, cells)


def _spent(used: SpendSum) -> str:
    """Return what was billed and imputed together; `?` where the cost of some calls is not known."""
    known = (used.cost.billed or 0.0) + (used.cost.imputed or 0.0)
    return f"{output.dollars(known)} + ?" if used.unpriced else output.dollars(known)


def _budget(key: KeyView | None, now: float, zone: ZoneInfo) -> Text:
    """Return what is spent of the budget, and until when the key is refused if that is all of it."""
    if key is None or key.budget is None:
        return Text("")
    line = plain(f"{output.dollars(key.spent or 0.0)} of {key.budget}")
    if key.is_reached:
        until = "" if key.resumes_at is None else f" until {clock(key.resumes_at, now, zone)}"
        line.append(f" reached{until}", style="bold red")
    return line


# -- units and events ------------------------------------------------------------------------------


def unit_row(unit: Unit, now: float, zone: ZoneInfo) -> Row:
    phase = phase_of(unit)
    since = unit.started_at if unit.state == "running" else unit.ended_at
    reason = "" if unit.state in ("done", "running") else output.one_line(unit.reason)
    if unit.resume_at is not None:
        reason = f"again {clock(unit.resume_at, now, zone)} in {countdown(unit.resume_at - now)}: {reason}"
    cells = (
        plain(unit.id),
        plain(phase, output.STATE_STYLES.get(phase, "")),
        plain(unit.counters.failures),
        plain(unit.counters.attempts),
        plain(login_text(unit.account or "")),
        plain("" if since is None else countdown(now - since)),
        plain(reason),
    )
    return Row(unit.id, cells)


def event_row(stored: StoredEvent, zone: ZoneInfo) -> Row:
    line = output.event_line(stored.event, zone)
    return Row(str(stored.id), (Text(line, style=output.event_style(stored.event), no_wrap=True),))
