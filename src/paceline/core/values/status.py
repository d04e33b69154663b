"""What a scope looks like from outside: a frozen value for people, APIs and pages."""

import msgspec

from paceline.core.gates.quota_window import Window
from paceline.core.gates.window_usage import Use
from paceline.core.state.limit_table import UNLIMITED
from paceline.core.state.scope import ScopeState


class WindowStatus(msgspec.Struct, frozen=True, gc=False):
    """A quota window: what is believed of it, from where, since when, and how far to trust it.

    `used_ratio` is what the provider told of this period. Where periods were seen from opening to closing,
    `estimated_ratio` is what is used by that measure, `holds_seconds` how many seconds of sessions one held, and
    `expected_reset` and `length` are when this one ends and how long they are, as told or as seen.
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

    @property
    def best_ratio(self) -> float | None:
        """How much is used: as told, else as estimated."""
        return self.estimated_ratio if self.used_ratio is None else self.used_ratio


class ScopeStatus(msgspec.Struct, frozen=True, gc=False):
    """`limit` is the effective one: the smallest of `configured`, `platform` and `adaptive`."""

    scope: str
    limit: int | None
    configured: int | None
    platform: int | None
    adaptive: int | None
    in_flight: int
    cooling: int
    queued: int
    paused: bool
    paused_until: float | None
    cooldown: float
    auto_reduced: bool
    auto_reduced_from: int | None
    notice: str | None
    window: WindowStatus | None
    windows: tuple[WindowStatus, ...]
    held: str | None
    reserve: float = 0.0


def scope_status(scope: ScopeState, now: float) -> ScopeStatus:
    headroom = scope.headroom
    adaptive = headroom.limit if headroom else None
    reduced_from = headroom.reduced_from if headroom else None
    paused_until = scope.pause.until if scope.pause else None
    is_paused = paused_until is not None and now < paused_until
    use = scope.use(now)
    windows = tuple([_window_status(window, use, now) for window in scope.windows.values()]) if scope.windows else ()
    return ScopeStatus(
        scope=scope.name,
        limit=None if scope.cap == UNLIMITED else scope.cap,
        configured=scope.configured,
        platform=scope.platform.limit if scope.platform else None,
        adaptive=adaptive,
        in_flight=scope.live,
        cooling=len(scope.cooling),
        queued=scope.waiting,
        paused=is_paused,
        paused_until=paused_until if is_paused else None,
        cooldown=scope.cooldown,
        auto_reduced=adaptive is not None,
        auto_reduced_from=reduced_from,
        notice=_notice(scope, adaptive, reduced_from),
        window=_first(windows) if windows else None,
        windows=windows,
        held=scope.hold,
        reserve=scope.reserve,
    )


def _first(windows: tuple[WindowStatus, ...]) -> WindowStatus:
    """The one to look at: one that is not open, if there is one."""
    return next((window for window in windows if window.state != "open"), windows[0])


def _window_status(window: Window, use: Use, now: float) -> WindowStatus:
    size = window.period.size(now)
    return WindowStatus(
        name=window.name,
        state=window.state,
        resets_at=window.resets_at,
        probe_at=window.probe_at,
        source=window.source,
        seen_at=window.seen_at,
        confidence=window.confidence,
        used_ratio=window.used_ratio if window.is_read else None,
        estimated_ratio=window.period.share_used(use, now),
        holds_seconds=None if size is None else size.seconds,
        expected_reset=window.expected_reset,
        length=window.length,
    )


def _notice(scope: ScopeState, adaptive: int | None, reduced_from: int | None) -> str | None:
    """What a person should know and can undo."""
    if scope.hold is not None:
        return f"held: {scope.hold}"
    if adaptive is not None:
        return f"auto-reduced from {reduced_from} to {adaptive} after a 429: restore"
    if scope.platform is not None:
        return f"the provider's own limit is {scope.platform.limit}"
    return None
