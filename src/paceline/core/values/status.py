"""The status of a scope as a frozen value for people, APIs and pages."""

import msgspec


class WindowStatus(msgspec.Struct, frozen=True, gc=False):
    """A quota window: what is believed of it, from where, since when, and how far to trust it.

    `used_ratio` is what the provider reported for this period. Where periods were seen from opening to closing,
    `estimated_ratio` is the use by that measure, and `holds_seconds` how many seconds of sessions one held.
    `expected_reset` and `length` are when this period ends and how long periods are, as stated or as seen.
    `missed_at` is a reset that has passed while the window still refused.
    """

    name: str
    state: str
    resets_at: float | None
    probe_at: float | None
    source: str | None
    seen_at: float | None
    confidence: float
    used_ratio: float | None
    estimated_ratio: float | None
    holds_seconds: float | None
    expected_reset: float | None
    length: float | None
    missed_at: float | None = None

    @property
    def best_ratio(self) -> float | None:
        """How much is used: as reported, else as estimated."""
        return self.estimated_ratio if self.used_ratio is None else self.used_ratio


SET_REASON = "set for the scope"


class RateStatus(msgspec.Struct, frozen=True, gc=False):
    """A rate of a scope: `used` of `limit` requests or tokens in `seconds`.

    `source` is `set`, `learnt` or `headers`. `until` is when a learnt rate is forgotten, or a stated one is full again.
    """

    kind: str
    source: str
    used: float
    limit: float
    reason: str
    seconds: float | None = None
    since: float | None = None
    until: float | None = None


class PaceStatus(msgspec.Struct, frozen=True, gc=False):
    """A learnt pace: runs, or starts, are about `interval` seconds apart. `until` is when it ends by itself."""

    interval: float
    reason: str
    since: float | None = None
    until: float | None = None


class LearntLimit(msgspec.Struct, frozen=True, gc=False):
    """What refusals taught about a limit: `held` places of `of` work. `refused_level` was refused last.

    `next_level` is tried at `next_try_at`, not before. Null: it is being tried now, or only `restore` raises it.
    """

    held: int
    reason: str
    of: int | None = None
    refused_level: int | None = None
    refused_at: float | None = None
    next_level: int | None = None
    next_try_at: float | None = None


class ScopeFigures(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What every form of a scope's status has. `in_flight` counts live slots, `queued` what waits there."""

    scope: str
    configured: int | None = None
    platform: int | None = None
    adaptive: int | None = None
    in_flight: int = 0
    queued: int = 0
    notice: str | None = None
    paused_since: float | None = None
    paused_until: float | None = None
    paused_reason: str | None = None
    paced_until: float | None = None
    pace: PaceStatus | None = None
    rates: tuple[RateStatus, ...] = ()
    learnt: LearntLimit | None = None


class ScopeCondition(ScopeFigures, frozen=True, gc=False, kw_only=True):
    """A scope with what closes it. `cooling` counts slots that are released but still occupy a place."""

    cooling: int = 0
    held: str | None = None
    windows: tuple[WindowStatus, ...] = ()


class LimitedScope(ScopeCondition, frozen=True, gc=False, kw_only=True):
    """A scope with its effective limit: the smallest of `configured`, `platform` and `adaptive`."""

    limit: int | None = None
    cooldown: float = 0.0
    auto_reduced: bool = False
    auto_reduced_from: int | None = None


class ScopeStatus(LimitedScope, frozen=True, gc=False, kw_only=True):
    """The status of one scope. `window` is the one of its windows that matters most."""

    paused: bool = False
    window: WindowStatus | None = None
    reserve: float = 0.0
