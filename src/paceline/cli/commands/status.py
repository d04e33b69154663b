"""`status` and `limits`: the engine, the pool and every scope, as they are now."""

import time

import msgspec
from rich.text import Text

from paceline.cli.options import AsJson
from paceline.cli.output import one_line, out, print_table, print_value, table
from paceline.cli.time_text import moment, relative
from paceline.cli.wiring import Home, open_home
from paceline.core import WindowStatus
from paceline.core.values.scopes import ScopePattern
from paceline.settings import Settings
from paceline.views.capacity import ScopeCapacity, capacity_rows, limit_rows
from paceline.views.status import read_status_summary

UNLIMITED = "none"


def command(as_json: AsJson = False) -> None:
    """Show whether an engine runs, how full the pool is, and when the next parked unit resumes."""
    with open_home() as home:
        show_status(home, as_json=as_json)


# -- status --------------------------------------------------------------------------------------


def show_status(home: Home, *, as_json: bool) -> None:
    now = time.time()
    fleet = home.read_fleet(now)
    status = read_status_summary(fleet, home.leader_process())
    if as_json:
        print_value(status)
        return
    engine, pool = status.engine, status.pool
    if engine.since is not None:
        _fact("engine", f"{engine.state}, process {engine.pid}, since {moment(engine.since, now, home.zone)}")
    else:
        _fact("engine", "not running; `paceline run PLAN` starts it")
    size = UNLIMITED if pool.sessions is None else str(pool.sessions)
    _fact("pool", f"{pool.running} of {size} sessions running, {pool.waiting} units waiting, {pool.parked} parked")
    units = msgspec.structs.asdict(status.units)
    _fact("units", ", ".join(f"{count} {state}" for state, count in units.items() if count) or "none")
    if status.next_resume_at is not None:
        _fact("next resume", moment(status.next_resume_at, now, home.zone))
    for row in capacity_rows(fleet):
        if words := condition_words(row, now):
            _fact(row.scope, words)
    _fact("home", str(home.path))


def _fact(name: str, value: str) -> None:
    out().print(Text.assemble((f"{name:<14} ", "dim"), one_line(value, 300)))


# -- limits --------------------------------------------------------------------------------------


class LimitLine(msgspec.Struct, frozen=True, kw_only=True):
    """One scope or pattern, with the keys that `limits --json` prints.

    `source` is where `configured` comes from. A pattern has no cooldown of its own.
    """

    scope: str
    configured: int | None
    source: str
    effective: int | None
    platform: int | None
    adaptive: int | None
    in_flight: int
    cooling: int
    cooldown: float | None
    paused_until: float | None
    held: str | None
    windows: tuple[WindowStatus, ...]
    notice: str | None
    state: str


def limit_line(row: ScopeCapacity, settings: Settings, now: float) -> LimitLine:
    """Return the row as `limits` prints it."""
    return LimitLine(
        scope=row.scope,
        configured=row.configured,
        source=source_text(row, settings),
        effective=row.limit,
        platform=row.platform,
        adaptive=row.adaptive,
        in_flight=row.in_flight,
        cooling=row.cooling,
        cooldown=row.cooldown if ScopePattern(row.scope).is_exact else None,
        paused_until=row.paused_until,
        held=row.held,
        windows=row.windows,
        notice=row.notice,
        state=condition_words(row, now),
    )


def source_text(row: ScopeCapacity, settings: Settings) -> str:
    """Return where the configured limit comes from. A file is named by its path."""
    if row.configured_source == "file" and row.configured_by is not None:
        return settings.limits[row.configured_by].source
    return row.configured_source


def condition_words(row: ScopeCapacity, now: float) -> str:
    """Return what a person should know about the scope: held, paused, closed, reduced."""
    words = []
    if row.held is not None:
        words.append(f"held: {row.held} (`paceline restore {row.scope}` once it is mended)")
    if row.paused_until is not None:
        words.append(f"paused, goes on {relative(row.paused_until - now)}")
    for window in row.windows:
        if window.state != "open":
            reset = f", reset {relative(window.resets_at - now)}" if window.resets_at is not None else ""
            probe = f", tried {relative(window.probe_at - now)}" if window.probe_at is not None else ""
            words.append(f"{window.name} window {window.state}{reset}{probe}")
        elif window.used_ratio is not None:
            words.append(f"{window.name} window {window.used_ratio:.0%} used")
        elif window.estimated_ratio is not None:
            words.append(f"{window.name} window about {window.estimated_ratio:.0%} used")
    if row.cooling:
        words.append(f"{row.cooling} released {'slot' if row.cooling == 1 else 'slots'} still cooling down")
    if row.auto_reduced:
        words.append(f"reduced from {row.auto_reduced_from} to {row.adaptive} after a 429")
    return "; ".join(words)


def show_limits(home: Home, *, as_json: bool) -> None:
    now = time.time()
    lines = [limit_line(row, home.settings, now) for row in limit_rows(home.read_fleet(now))]
    if as_json:
        print_value({"limits": lines})
        return
    numbers = ("limit", "configured", "platform", "adaptive", "in flight")
    made = table("scope", *numbers, "from", "state", right=numbers)
    for line in lines:
        learnt = ("" if each is None else str(each) for each in (line.platform, line.adaptive))
        made.add_row(
            line.scope,
            _number(line.effective),
            _number(line.configured),
            *learnt,
            str(line.in_flight or ""),
            line.source,
            one_line(line.state, 160),
        )
    print_table(made)


def _number(limit: int | None) -> str:
    return UNLIMITED if limit is None else str(limit)
