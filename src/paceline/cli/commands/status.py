"""`status` and `limits`: the engine, the pool and every scope, as they are now."""

import time
from importlib.metadata import version

import msgspec
from rich.text import Text

from paceline.cli.options import AsJson
from paceline.cli.output import one_line, out, print_table, print_value, table
from paceline.cli.time_text import moment, relative
from paceline.cli.wiring import Home, open_home
from paceline.core import ScopeStatus, WindowStatus
from paceline.core.values.scopes import SESSIONS
from paceline.engine.offline_state import OfflineState
from paceline.store import Campaign
from paceline.views.safe_text import total_counts

UNLIMITED = "none"


def command(as_json: AsJson = False) -> None:
    """Show whether an engine runs, how full the pool is, and when the next parked unit resumes."""
    with open_home() as home:
        show_status(home, as_json=as_json)


# -- status --------------------------------------------------------------------------------------


class EngineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The engine that runs the home, if one does."""

    state: str
    since: float | None
    version: str
    pid: int | None


class PoolStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Its size (None: no limit), and what runs and waits for it."""

    sessions: int | None
    running: int
    waiting: int
    parked: int


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The whole home at a glance."""

    engine: EngineStatus
    pool: PoolStatus
    units: dict[str, int]
    next_resume_at: float | None


def read_status(home: Home, offline: OfflineState) -> Status:
    leader = home.engine_leader()
    campaigns = offline.campaigns.values()
    units: dict[str, int] = msgspec.structs.asdict(total_counts(home.store.counts()))
    parked = units.pop("parked")
    are_paused = bool(campaigns) and all(campaign.state != "active" for campaign in campaigns)
    leading = "paused" if are_paused else "leading"
    return Status(
        engine=EngineStatus(
            state=leading if leader else "stopped",
            since=leader.since if leader else None,
            version=version("paceline"),
            pid=leader.pid if leader else None,
        ),
        pool=PoolStatus(
            sessions=offline.governor.get_limit(SESSIONS),
            running=units["running"],
            waiting=units["todo"] - parked,
            parked=parked,
        ),
        units=units,
        next_resume_at=home.store.next_resume_at(),
    )


def show_status(home: Home, *, as_json: bool) -> None:
    now = time.time()
    offline = home.offline_state(now)
    status = read_status(home, offline)
    if as_json:
        print_value(status)
        return
    engine, pool, units = status.engine, status.pool, status.units
    if engine.since is not None:
        _fact("engine", f"{engine.state}, process {engine.pid}, since {moment(engine.since, now, home.zone)}")
    else:
        _fact("engine", "not running; `paceline run PLAN` starts it")
    size = UNLIMITED if pool.sessions is None else str(pool.sessions)
    _fact("pool", f"{pool.running} of {size} sessions running, {pool.waiting} units waiting, {pool.parked} parked")
    _fact("units", ", ".join(f"{count} {state}" for state, count in units.items() if count) or "none")
    if status.next_resume_at is not None:
        _fact("next resume", moment(status.next_resume_at, now, home.zone))
    for scope in _scopes(offline, now):
        if words := _state_words(scope, now):
            _fact(scope.scope, words)
    _fact("home", str(home.path))


def _fact(name: str, value: str) -> None:
    out().print(Text.assemble((f"{name:<14} ", "dim"), one_line(value, 300)))


# -- limits --------------------------------------------------------------------------------------


class LimitRow(msgspec.Struct, frozen=True, kw_only=True):
    """One scope or pattern. `source` says where `configured` comes from."""

    scope: str
    configured: int | None
    source: str
    effective: int | None
    platform: int | None = None
    adaptive: int | None = None
    in_flight: int = 0
    cooldown: float | None = None
    paused_until: float | None = None
    held: str | None = None
    windows: tuple[WindowStatus, ...] = ()
    notice: str | None = None
    state: str = ""


def limit_rows(home: Home, offline: OfflineState, now: float) -> list[LimitRow]:
    """Every configured limit, then every other scope about which something is known."""
    statuses = {status.scope: status for status in _scopes(offline, now)}
    sources = _sources(home, offline)
    rows = [_row(scope, offline, sources, statuses.get(scope), now) for scope in sources]
    inherited = [scope for scope in statuses if scope not in sources and _is_worth_telling(statuses[scope], now)]
    return rows + [_row(scope, offline, sources, statuses[scope], now) for scope in sorted(inherited)]


def _sources(home: Home, offline: OfflineState) -> dict[str, str]:
    live = offline.governor.snapshot().limits
    sources = {scope: entry.source for scope, entry in home.settings.limits.items()}
    return {**sources, **{scope: _live_source(scope, limit, offline) for scope, limit in live.items()}}


def _live_source(scope: str, limit: int | None, offline: OfflineState) -> str:
    campaign: Campaign | None = offline.campaigns.get(scope.removeprefix("campaign:"))
    is_plans = campaign is not None and scope.startswith("campaign:") and campaign.max_sessions == limit
    return "plan" if is_plans else "live"


def _scopes(offline: OfflineState, now: float) -> list[ScopeStatus]:
    return offline.governor.statuses(now=now)


def _row(
    scope: str, offline: OfflineState, sources: dict[str, str], status: ScopeStatus | None, now: float
) -> LimitRow:
    configured = offline.governor.get_limit(scope)
    if status is None:
        return LimitRow(scope=scope, configured=configured, source=sources[scope], effective=configured)
    return LimitRow(
        scope=scope,
        configured=configured,
        source=sources.get(scope, "pattern" if configured is not None else ""),
        effective=status.limit,
        platform=status.platform,
        adaptive=status.adaptive,
        in_flight=status.in_flight + status.cooling,
        cooldown=status.cooldown,
        paused_until=status.paused_until,
        held=status.held,
        windows=status.windows,
        notice=status.notice,
        state=_state_words(status, now),
    )


def _is_worth_telling(status: ScopeStatus, now: float) -> bool:
    is_limited = status.limit is not None and "/" in status.scope
    return is_limited or bool(status.in_flight or status.platform or status.adaptive or _state_words(status, now))


def _state_words(status: ScopeStatus, now: float) -> str:
    """What a person should know of the scope: held, paused, closed, reduced."""
    words = []
    if status.held is not None:
        words.append(f"held: {status.held} (`paceline restore {status.scope}` once it is mended)")
    if status.paused and status.paused_until is not None:
        words.append(f"paused, goes on {relative(status.paused_until - now)}")
    for window in status.windows:
        if window.state != "open":
            reset = f", reset {relative(window.resets_at - now)}" if window.resets_at is not None else ""
            probe = f", tried {relative(window.probe_at - now)}" if window.probe_at is not None else ""
            words.append(f"{window.name} window {window.state}{reset}{probe}")
        elif window.used_ratio is not None:
            words.append(f"{window.name} window {window.used_ratio:.0%} used")
        elif window.estimated_ratio is not None:
            words.append(f"{window.name} window about {window.estimated_ratio:.0%} used")
    if status.auto_reduced:
        words.append(f"reduced from {status.auto_reduced_from} to {status.adaptive} after a 429")
    return "; ".join(words)


def show_limits(home: Home, *, as_json: bool) -> None:
    now = time.time()
    rows = limit_rows(home, home.offline_state(now), now)
    if as_json:
        print_value({"limits": rows})
        return
    numbers = ("limit", "configured", "platform", "adaptive", "in flight")
    made = table("scope", *numbers, "from", "state", right=numbers)
    for row in rows:
        learnt = ("" if each is None else str(each) for each in (row.platform, row.adaptive))
        made.add_row(
            row.scope,
            _number(row.effective),
            _number(row.configured),
            *learnt,
            str(row.in_flight or ""),
            row.source,
            one_line(row.state, 160),
        )
    print_table(made)


def _number(limit: int | None) -> str:
    return UNLIMITED if limit is None else str(limit)
