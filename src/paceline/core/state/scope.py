"""One scope as the Governor sees it: its numbers, its gates, and who waits for it.

The hot numbers are `used` (places taken, cooling ones included) and `open_cap` (how many may be
taken without a second look; 0 while any gate is up). Everything else is consulted only when
`used >= open_cap`.
"""

from typing import TYPE_CHECKING

from paceline.core.gates.learned_rate import LearntRate
from paceline.core.gates.pause import Pause, Reentry
from paceline.core.gates.rate_limit import RateWindow
from paceline.core.gates.usage_poll import DEFAULT_LAG_SECONDS, UsageGate
from paceline.core.gates.window_budget import BudgetGate, Pace, Pacer
from paceline.core.limits.adaptive_limit import Headroom, PlatformCap
from paceline.core.state.limit_table import UNLIMITED, smallest
from paceline.core.state.usage_meter import QuotaState
from paceline.core.values.scopes import SESSIONS, is_provider_scope
from paceline.core.values.settings import Cooldown, HeadroomMode
from paceline.core.values.tickets import Ticket
from paceline.core.values.verdicts import Reason

if TYPE_CHECKING:
    from paceline.core.state.queue import Lane, Watchers


def cooldown_seconds(is_provider: bool, setting: Cooldown, learnt: float | None) -> float:
    """Only a provider's counter lags."""
    if not is_provider:
        return 0.0
    return (learnt or DEFAULT_LAG_SECONDS) if setting == "auto" else setting


class ScopeState(QuotaState):
    """Mutable; owned by one Governor. Optional parts are None until something brings them up."""

    __slots__ = (
        "alert",
        "budget",
        "cap",
        "configured",
        "cooldown_setting",
        "headroom",
        "hold",
        "is_gated",
        "is_provider",
        "lane_count",
        "learns",
        "learnt_rates",
        "mean_tokens",
        "mode",
        "name",
        "open_cap",
        "pace",
        "pacer",
        "pause",
        "platform",
        "rate",
        "reentry",
        "reserved",
        "run_lanes",
        "usage",
        "waiting",
        "wake_at",
        "watchers",
    )

    def __init__(
        self, name: str, configured: int | None, cooldown: Cooldown, mode: HeadroomMode, reserve: float, now: float
    ) -> None:
        super().__init__(reserve, now)
        self.name = name
        self.is_provider = is_provider_scope(name)
        self.configured = configured
        self.cooldown_setting = cooldown
        self.mode = mode
        self.reserved = 0
        self.waiting = 0
        self.headroom: Headroom | None = None
        self.platform: PlatformCap | None = None
        self.pause: Pause | None = None
        self.reentry: Reentry | None = None
        self.pace: Pace | None = None
        self.pacer: Pacer | None = None
        self.learnt_rates: dict[str, LearntRate] = {}
        self.mean_tokens = 0.0
        self.budget: BudgetGate | None = None
        self.rate: RateWindow | None = None
        self.usage: UsageGate | None = None
        self.hold: str | None = None
        self.watchers: Watchers = {}
        self.run_lanes: dict[Lane, None] = {}
        self.lane_count = 0
        self.wake_at: float | None = None
        self.refresh()

    @property
    def cooldown(self) -> float:
        """How long a released slot still counts."""
        return cooldown_seconds(self.is_provider, self.cooldown_setting, self.usage.learnt_lag if self.usage else None)

    @property
    def release_lag(self) -> float:
        """The cooldown, or longer where refusals taught that the provider's count lags by more."""
        learnt = self.headroom.lag if self.headroom is not None and self.mode == "adaptive" else 0.0
        return max(self.cooldown, learnt)

    @property
    def effective(self) -> int | None:
        adaptive = self.headroom.limit if self.headroom else None
        platform = self.platform.limit if self.platform else None
        return smallest(self.configured, platform, adaptive)

    def is_idle(self, now: float) -> bool:
        """Nothing here that a fresh state would not have."""
        if self.used or self.lane_count or self.headroom or self.platform or self._learnt_gates:
            return False
        return self.rate is None or self.rate.next_change(now) is None

    @property
    def _learnt_gates(self) -> bool:
        """All but a rate of one's own, which a fresh state has too."""
        return bool(
            self.hold
            or self.pause
            or self.reentry
            or self.windows
            or self.pace
            or self.pacer
            or self.learnt_rates
            or self.budget
            or self.usage
        )

    def refresh(self) -> None:
        """Recompute the hot numbers after any change of limits, gates or claims."""
        effective = self.effective
        self.is_gated = self._learnt_gates or self.rate is not None
        self.cap = UNLIMITED if effective is None else effective
        self.open_cap = 0 if self.is_gated else self.cap - self.reserved
        self.learns = bool(self.headroom or self.platform or self.pause or self.windows)
        cools = self.release_lag > 0 and effective is not None
        is_waited_for = self.watchers or self.run_lanes or self.reserved
        self.alert = bool(cools or self.is_gated or self.learns or is_waited_for)

    def refuses(self, ticket: Ticket, now: float, *, needs_room: bool = True, own_claims: int = 0) -> Reason | None:
        """The first thing that keeps the ticket out of this scope now, or None."""
        if not self.is_gated:
            return self.room_reason(own_claims) if needs_room else None
        return (
            self.gate_reason(ticket, now)
            or (self.room_reason(own_claims) if needs_room else None)
            or (self._usage_reason(now) if needs_room else None)
        )

    def gate_reason(self, ticket: Ticket, now: float) -> Reason | None:
        """Gates hold whether or not there is room."""
        if self.hold is not None:
            return "held"
        if self.pause is not None and self.pause.until is not None and now < self.pause.until:
            return "paused"
        if self.reentry is not None and now < self.reentry.next_at:
            return "pacing"
        if self.windows and (held := self.window_hold(ticket, now)) is not None:
            return held.reason
        if self.pace is not None and self.live >= self.pace.limit:
            return "pacing"
        if self.pacer is not None and now < self.pacer.next_at and ticket.parent is None:
            return "pacing"
        if self.budget_obstacle(ticket, now) is not None:
            return "pacing"
        if self.is_rate_spent(ticket, now):
            return "pacing"
        if self.rate is not None and self.rate.obstacle(ticket, now) is not None:
            return "pacing"
        return None

    def budget_obstacle(self, ticket: Ticket, now: float) -> tuple[str, float] | None:
        """What of the header's budgets is used up, and until when. Sessions use none: it is their runs that do."""
        if self.budget is None or SESSIONS in ticket.scopes:
            return None
        return self.budget.obstacle(ticket.tokens, now)

    def is_rate_spent(self, ticket: Ticket, now: float) -> bool:
        """Whether a rate that refusals taught holds the ticket back."""
        return any(rate.ready_at(ticket, now) is not None for rate in self.learnt_rates.values())

    def room_reason(self, own_claims: int = 0) -> Reason | None:
        """`own_claims` of the kept places are the asker's own (its claim, and older ones do not count)."""
        free = self.cap - self.used
        if free > self.reserved - own_claims:
            return None
        if free > 0:
            return "queue_order"
        if self.cap > self.live:
            return "cooldown"
        return "platform_limit" if self.platform is not None and self.platform.limit == self.cap else "limit"

    def _usage_reason(self, now: float) -> Reason | None:
        """The gate concerns scopes where someone waits; elsewhere local accounting is enough."""
        if self.usage is None or self.waiting == 0:
            return None
        return None if self.usage.room(self.cap, self.start_lag, now) > 0 else "usage_gate"

    @property
    def start_lag(self) -> float:
        """How long the provider's own count may trail behind a start."""
        learnt = self.usage.start_lag if self.usage else 0.0
        return max(learnt, self.cooldown or DEFAULT_LAG_SECONDS)

    def on_grant(self, ticket: Ticket, now: float) -> list[str]:
        """Tell the gates that one entered; the names of windows it is the canary of."""
        if self.pacer is not None and ticket.parent is None:
            self.pacer.on_grant(now)
            if now >= self.pacer.ease_at and not self.pacer.ease(now):
                self.pacer = None
                self.refresh()
        if self.reentry is not None and not self.reentry.on_grant(now):
            self.reentry = None
            self.refresh()
        if self.budget is not None and SESSIONS not in ticket.scopes:
            self.budget.on_grant(ticket.tokens)
        for rate in self.learnt_rates.values():
            rate.on_grant(ticket, now)
        if self.rate is not None:
            self.rate.on_grant(ticket, now)
        return self.on_grant_in_windows(ticket.id, now)

    def next_wake(self, now: float) -> float | None:
        """When this scope changes by time alone; None while nothing does."""
        times: list[float | None] = [self.cooling[0]] if self.cooling else []
        if self.pause is not None:
            times.append(self.pause.until)
        if self.waiting:
            times.extend(self._wakes_for_waiters(now))
        ahead = [at for at in times if at is not None and at > now]
        ahead += [max(at, now) for at in (self.climb_at, self.probe_at) if at is not None]  # a late success: at once
        return min(ahead, default=None)

    @property
    def climb_at(self) -> float | None:
        """When the adaptive limit may grow; None while nothing has gone well, or where only a person restores it."""
        may_climb = self.headroom is not None and self.headroom.success_since and self.mode == "adaptive"
        return self.headroom.climb_at if self.headroom is not None and may_climb else None

    @property
    def probe_at(self) -> float | None:
        """When the platform limit may be tried one above; None while nothing has gone well."""
        return self.platform.probe_at if self.platform is not None and self.platform.success_since else None

    def _wakes_for_waiters(self, now: float) -> list[float | None]:
        times = self.window_wakes(now)
        if self.pace is not None:
            times.append(self.pace.until)
        if self.reentry is not None:
            times.append(self.reentry.next_at)
        if self.pacer is not None:
            times.append(self.pacer.next_at)
        times.extend(rate.next_at for rate in self.learnt_rates.values())
        if self.budget is not None:
            times.extend(self.budget.resets())
        if self.rate is not None:
            times.append(self.rate.next_change(now))
        if self.usage is not None:
            times.extend(self.usage.wakes())
        return times

    def shift(self, seconds: float) -> None:
        """The clock was set back: keep what is left of every relative wait."""
        super().shift(seconds)
        self.watchers = {
            group: [(key - seconds, seq, lane) for key, seq, lane in heap] for group, heap in self.watchers.items()
        }
        parts = (self.pause, self.reentry, self.headroom, self.platform, self.pacer, self.rate, self.usage)
        for part in (*parts, *self.learnt_rates.values()):
            if part is not None:
                part.shift(seconds)
