"""Limits and conditions of scopes as text: for `limits`, `status` and `top`."""

import msgspec

from paceline.cli.time_text import relative
from paceline.core import WindowStatus
from paceline.core.values.scopes import ScopePattern
from paceline.core.values.status import LearntLimit, PaceStatus, RateStatus
from paceline.settings import Settings
from paceline.views.capacity import ScopeCapacity

UNLIMITED = "none"


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
    paused_since: float | None = None
    paused_reason: str | None = None
    paced_until: float | None = None
    pace: PaceStatus | None = None
    rates: tuple[RateStatus, ...] = ()
    learnt: LearntLimit | None = None


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
        state=condition_text(row, now),
        paused_since=row.paused_since,
        paused_reason=row.paused_reason,
        paced_until=row.paced_until,
        pace=row.pace,
        rates=row.rates,
        learnt=row.learnt,
    )


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
