"""One scope as the Governor sees it: its counts, its limits, its gates and its use.

The hot numbers are `used` (places taken, cooling ones included) and `open_cap` (how many may be taken without asking
further; 0 while any gate is active). Gates are consulted only when `used >= open_cap`. From the time
`notify_from` on, every gate must be notified of each grant. Before `counts_until` only the gate `counter` needs to be
notified. `learner` is the same gate, set while no other part of the scope learns from a success.
Never here: who waits for the scope (`lane.py`), and what is decided (`decisions/`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from paceline.core.gates.gate import NOW, Gate, GateEvent
from paceline.core.gates.header_budget import HeaderBudget
from paceline.core.gates.order import GateSet
from paceline.core.gates.usage_poll import DEFAULT_LAG_SECONDS, UsagePoll
from paceline.core.limits import UNLIMITED, AdaptiveLimit, PlatformCap, smallest
from paceline.core.state.usage_meter import CallLength, TokenEstimate, UsageMeter, Use
from paceline.core.values.scopes import KEY, is_provider_scope
from paceline.core.values.settings import Cooldown, HeadroomMode
from paceline.core.values.tickets import Reason, Ticket


def cooldown_seconds(is_provider: bool, setting: Cooldown, learnt: float | None) -> float:
    """Return the cooldown in seconds. Only a provider's counter lags."""
    if not is_provider:
        return 0.0
    return (learnt or DEFAULT_LAG_SECONDS) if setting == "auto" else setting


@dataclass(slots=True, eq=False)
class Scope:
    """The state of one scope, owned by one ledger. Optional parts are None until something needs them.

    `claimed` counts places kept for place claims, `cooling` holds the times at which released places are free
    again, `wake_at` is the time of the timer that counts.
    """

    name: str
    configured: int | None
    cooldown_setting: Cooldown
    mode: HeadroomMode
    reserve: float
    meter: UsageMeter
    is_provider: bool = False
    is_key: bool = False
    cools_by_account: bool = False
    """Whether an account that shares its places may have another cooldown."""
    used: int = 0
    cooling: list[float] = field(default_factory=list)
    claimed: int = 0
    waiting: int = 0
    spread_waiters: int = 0
    lane_count: int = 0
    is_watched: bool = False
    wake_at: float | None = None
    tokens: TokenEstimate = field(default_factory=TokenEstimate)
    calls: CallLength = field(default_factory=CallLength)
    adaptive: AdaptiveLimit | None = None
    platform: PlatformCap | None = None
    gates: GateSet = field(default_factory=GateSet)
    usage: UsagePoll | None = None
    cap: int = UNLIMITED
    open_cap: int = UNLIMITED
    is_gated: bool = False
    learns: bool = False
    alert: bool = False
    notify_from: float = math.inf
    counts_until: float = math.inf
    counter: HeaderBudget | None = None
    learner: HeaderBudget | None = None

    def __post_init__(self) -> None:
        self.is_provider = is_provider_scope(self.name)
        self.is_key = self.name.startswith(KEY)
        self.refresh()

    # -- counts and limits -------------------------------------------------------------------

    @property
    def live(self) -> int:
        """Places held by live slots."""
        return self.used - len(self.cooling)

    @property
    def is_full(self) -> bool:
        """Whether nobody can take a place: all are taken, or kept for place claims."""
        return self.cap - self.used <= self.claimed

    @property
    def keeps_tokens(self) -> bool:
        """Whether its rate keeps tokens for the first in a lane."""
        rate = self.gates.rate_limit
        return rate is not None and rate.kept_for is not None

    def use(self, now: float) -> Use:
        """Return what its slots have used up to now."""
        return self.meter.use(self.live, now)

    @property
    def cooldown(self) -> float:
        """How long a released slot still counts."""
        return cooldown_seconds(self.is_provider, self.cooldown_setting, self.usage.learnt_lag if self.usage else None)

    def cooldown_for(self, account: "Scope | None") -> float:
        """Return how long a released slot of the account still counts: in a shared scope as long as in its own."""
        if account is None or not self.cools_by_account or account.cooldown_setting == self.cooldown_setting:
            return self.cooldown
        return account.cooldown

    @property
    def learnt_lag(self) -> float:
        """How far the provider's count lags, as refusals taught."""
        return self.adaptive.lag.seconds if self.adaptive is not None and self.mode == "adaptive" else 0.0

    @property
    def effective(self) -> int | None:
        """The effective limit: the smallest of the configured, platform and adaptive ones."""
        adaptive = self.adaptive.limit if self.adaptive else None
        platform = self.platform.limit if self.platform else None
        return smallest(self.configured, platform, adaptive)

    @property
    def climb_at(self) -> float | None:
        """When the adaptive limit may grow; None while nothing has gone well, or where only a person restores it."""
        adaptive = self.adaptive
        if adaptive is None or not adaptive.success_since or self.mode != "adaptive":
            return None
        return adaptive.climb_at

    @property
    def probe_at(self) -> float | None:
        """When the platform limit may be tried one above; None while nothing has gone well."""
        return self.platform.probe_at if self.platform is not None and self.platform.success_since else None

    def is_idle(self, now: float) -> bool:
        """Return whether a new scope would have the same state, so that this one can be dropped."""
        if self.used or self.lane_count or self.adaptive or self.platform or self.usage or self.gates.unknown:
            return False
        return all(gate.is_idle(now) for gate in self.gates.in_order)

    def refresh(self) -> None:
        """Recompute the hot numbers after any change of limits, gates, watchers or place claims."""
        effective = self.effective
        self.cap = UNLIMITED if effective is None else effective
        counter = self.gates.header_budget
        self.is_gated = is_busy = self.usage is not None
        learns = self.adaptive is not None or self.platform is not None
        notify_from = math.inf
        for gate in self.gates.in_order:
            if gate is counter:
                continue
            active_from = gate.active_from(self)
            if active_from == NOW:
                is_busy = True
            else:
                notify_from = min(notify_from, active_from)
            learns = learns or gate.awaits_success(self)
        cools = effective is not None and (self.cools_by_account or max(self.cooldown, self.learnt_lag) > 0)
        self.is_gated = is_busy
        self.alert = bool(cools or is_busy or learns or self.is_watched or self.claimed)
        self.counter, self.counts_until = None if is_busy else counter, notify_from
        self.learner = None if self.alert else counter
        if counter is not None:
            self.is_gated = is_busy or counter.may_refuse
            notify_from = min(notify_from, counter.active_from(self))
            learns = learns or counter.awaits_success(self)
        self.learns = learns
        self.alert = self.alert or self.is_gated or learns
        self.open_cap = 0 if self.is_gated else self.cap - self.claimed
        self.notify_from = -math.inf if self.is_gated else notify_from

    # -- deciding: gates, then room, then usage ----------------------------------------------

    def refuses(self, ticket: Ticket, now: float, *, needs_room: bool = True, own_claims: int = 0) -> Reason | None:
        if (self.is_gated or ticket.spread) and (refusal := self.gates.refusal(ticket, self, now)) is not None:
            return refusal[1]
        if not needs_room:
            return None
        return self.room_reason(own_claims) or (None if self.usage is None else self._usage_reason(self.usage, now))

    def room_reason(self, own_claims: int = 0) -> Reason | None:
        """Return why there is no room. `own_claims` of the claimed places are the asker's, or do not count for it."""
        free = self.cap - self.used
        if free > self.claimed - own_claims:
            return None
        if free > 0:
            return "queue_order"
        if self.cap > self.live:
            return "cooldown"
        return "platform_limit" if self.platform is not None and self.platform.limit == self.cap else "limit"

    def _usage_reason(self, usage: UsagePoll, now: float) -> Reason | None:
        """Return a refusal by the provider's own count. Where nobody waits, local accounting is enough."""
        if not self.waiting:
            return None
        return None if self.usage_room(usage, now) > 0 else "usage_gate"

    def usage_room(self, usage: UsagePoll, now: float) -> int:
        """Return how many may enter by the provider's own count."""
        lag = max(usage.start_lag, self.cooldown or DEFAULT_LAG_SECONDS)  # how far the count may lag behind a start
        return usage.room(self.cap, self.live, lag, now)

    # -- gates -------------------------------------------------------------------------------

    def on_grant(self, ticket: Ticket, now: float, *, takes_place: bool) -> list[GateEvent]:
        events: list[GateEvent] = []
        for gate in self.gates.in_order:
            events.extend(gate.on_grant(ticket, self, now, takes_place=takes_place))
        self.gates.drop_idle(now)
        self.refresh()
        return events

    def put_gate(self, gate: Gate) -> None:
        self.gates.put(gate)
        self.refresh()

    def drop_gate(self, *dropped: type[Gate] | str) -> None:
        self.gates.drop(*dropped)
        self.refresh()

    # -- time --------------------------------------------------------------------------------

    def next_wake(self, now: float) -> float | None:
        """Return when this scope changes by time alone; None while nothing does."""
        has_waiters = self.waiting > 0
        times = [gate.next_wake(self, now, has_waiters=has_waiters) for gate in self.gates.in_order]
        if self.cooling:
            times.append(self.cooling[0])
        if has_waiters and self.usage is not None:
            times.extend(self.usage.wakes())
        ahead = [at for at in times if at is not None and at > now]
        if self.adaptive is not None or self.platform is not None:
            ahead += [max(at, now) for at in (self.climb_at, self.probe_at) if at is not None]  # at once if overdue
        return min(ahead, default=None)

    def on_time(self, now: float) -> Sequence[GateEvent]:
        """Free the places that have cooled, and let the gates carry out what is due."""
        cooled = sum(at <= now for at in self.cooling)
        if cooled:
            del self.cooling[:cooled]
            self.used -= cooled
        events: list[GateEvent] = []
        for gate in self.gates.in_order:
            events.extend(gate.on_time(self, now))
        self.gates.drop_idle(now)
        return events

    def shift(self, seconds: float) -> None:
        """Keep what is left of every relative wait after the clock was set back by `seconds`."""
        self.meter.shift(seconds, self.live)
        self.cooling = [at - seconds for at in self.cooling]
        for part in (self.adaptive, self.platform, self.usage, *self.gates.in_order):
            if part is not None:
                part.shift(seconds)
        self.refresh()
