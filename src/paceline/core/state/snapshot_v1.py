"""Reader of snapshots of version 1, in which every gate had a field of its own.

Here: how those fields become gates by tag. Never here: anything that writes them.
"""

from typing import Any

import msgspec

from paceline.core.limits.adaptive_limit import SHORTEST_PATIENCE_SECONDS, AdaptiveLimit
from paceline.core.limits.incident import Incidents
from paceline.core.limits.release_lag import ReleaseLag

Raw = dict[str, Any]


class HeadroomV1(msgspec.Struct, frozen=True, kw_only=True):
    """The adaptive limit, the release lag and the incidents in one."""

    limit: int | None = None
    reduced_from: int | None = None
    worked_at: int | None = None
    failed_at: int | None = None
    patience: float = SHORTEST_PATIENCE_SECONDS
    stride: int = 1
    step: int = 1
    incident: int = -1
    paced_incident: int = -1
    incident_until: float | None = None
    climb_at: float | None = None
    success_since: bool = False
    lag: float = 0.0
    is_trying: bool = False
    ended_when_full: int = 0
    was_step: bool = False
    retry_at: float | None = None
    releases: list[float] = []


class ScopeFieldsV1(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of a scope that only version 1 wrote."""

    headroom: HeadroomV1 | None = None
    pause: Raw | None = None
    reentry: Raw | None = None
    windows: tuple[Raw, ...] = ()
    pacer: Raw | None = None
    learnt_rates: tuple[Raw, ...] = ()
    budget: Raw | None = None
    rate: Raw | None = None
    hold: str | None = None


def gates_of(old: ScopeFieldsV1, starts: int) -> dict[str, object]:
    """Return the gates by tag; `starts` are those of the scope at the time of the snapshot."""
    found: dict[str, object] = {
        "pause": old.pause,
        "slow_start": old.reentry,
        "start_spacing": old.pacer,
        "header_budget": old.budget,
        "rate_limit": old.rate,
    }
    if old.hold is not None:
        found["account_hold"] = {"cause": old.hold}
    if old.windows:
        found["quota_windows"] = {"windows": {each["name"]: _window(each, starts) for each in old.windows}}
    if old.learnt_rates:
        found["learned_rate"] = {"rates": {each["cause"]: _rate(each) for each in old.learnt_rates}}
    return {tag: raw for tag, raw in found.items() if raw is not None}


def _window(old: Raw, starts: int) -> Raw:
    """Convert a window: starts are counted from the beginning, not from the last reading; the plan has a new name."""
    window = dict(old)
    window["starts_at_reading"] = starts - window.pop("started_since_reading", 0)
    window["plan_from"] = window.pop("line_from", None)
    return window


def _rate(old: Raw) -> Raw:
    """Convert a learnt rate: one that counted tokens had a mean of its own."""
    return {**old, "counts_tokens": old.get("mean", 0.0) > 0}


def mean_tokens_of(old: ScopeFieldsV1, mean: float) -> float:
    """Return the scope's mean of tokens, else that of a gate: each had its own."""
    means = [part.get("mean_tokens", 0.0) for part in (old.budget, old.rate) if part is not None]
    return float(mean or next((each for each in means if each), 0.0))


def adaptive_of(old: HeadroomV1 | None) -> AdaptiveLimit | None:
    """Return the adaptive limit with its release lag and incidents apart."""
    if old is None:
        return None
    known = set(old.__struct_fields__) - {"lag"}
    shared = {name: getattr(old, name) for name in AdaptiveLimit.__struct_fields__ if name in known}
    return AdaptiveLimit(
        **shared,
        lag=ReleaseLag(seconds=old.lag, releases=list(old.releases)),
        incidents=Incidents(old.incident, old.paced_incident, old.incident_until, old.was_step),
    )
