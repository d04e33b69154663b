"""Start meters: how many may start by when.

- `SlowStart`: after a pause a scope admits its waiters one by one, at shrinking intervals. If the provider refuses the
  first one again, the others have not started. The intervals follow the length of the calls: where a call takes
  milliseconds, so does its refusal
- `FirstRamp`: the sessions of a scope that nothing is known about start over some seconds, not all at once. A set
  limit that is twice too high then costs a few refusals instead of as many as there are places too many. Calls that
  belong to no session are let through: they are over in seconds, and somebody waits for each
- `StartSpacing`: where a provider refuses too many starts at once, they are an interval apart. Runs of a session are no
  starts: their session was
- `StartCap`: a campaign with a deadline starts no more sessions at once than meet it, and few sessions or none start in
  a scope whose window the live ones will use up
"""

from collections.abc import Sequence
from typing import ClassVar

from paceline.core.gates.gate import NEVER, NOW, Explanation, Gate, GateEvent, ScopeView, earliest
from paceline.core.limits import BURST_SECONDS, UNLIMITED
from paceline.core.values.scopes import SESSIONS
from paceline.core.values.tickets import Reason, Ticket

FIRST_GAP_SECONDS = 2.0
"""The gap after the first one: about as long as a provider takes to refuse a start."""
GAP_IN_CALLS = 2.0
"""The first gap where calls are short: in the time of two calls a refusal has come back."""
LAST_GAP_SECONDS = 0.1
"""The n-th gap is the first one divided by n. From the twentieth on it makes no difference."""
SHORTEST_GAP_SECONDS = 0.001
"""A gap that ends now would wake nobody; a millisecond is no wait."""
LULL_SECONDS = 30.0
"""If no waiter took its turn for this long, no crowd is left to hold back."""


class SlowStart(Gate):
    """The slow start of one scope. `next_at` is when the next waiter may enter."""

    TAG = "slow_start"
    relative_times: ClassVar[tuple[str, ...]] = ("next_at", "last_at")

    next_at: float
    entered: int = 0
    is_over: bool = False
    last_at: float | None = None
    """When the last one entered."""

    def refuses(self, ticket: Ticket, scope: ScopeView, now: float) -> Reason | None:
        return "pacing" if now < self.next_at else None

    def explain(self, ticket: Ticket, scope: ScopeView, now: float) -> Explanation:
        return Explanation(f"{scope.name} admits its waiters one by one after a refusal", self.next_at)

    def is_idle(self, now: float) -> bool:
        return self.is_over

    def on_grant(self, ticket: Ticket, scope: ScopeView, now: float, *, takes_place: bool) -> Sequence[GateEvent]:
        is_lull = now > self.next_at + LULL_SECONDS
        self.entered += 1
        self.last_at = now
        self.next_at = now + self._gap(scope.calls.seconds(scope.use(now), scope.live))
        self.is_over = FIRST_GAP_SECONDS / self.entered <= LAST_GAP_SECONDS or is_lull
        return ()

    def awaits_success(self, scope: ScopeView) -> bool:
        return True

    def on_success(self, ticket: Ticket | None, granted_at: float, scope: ScopeView, now: float) -> Sequence[GateEvent]:
        """Let the next one enter sooner where calls turn out to be short."""
        if self.last_at is not None and granted_at <= self.last_at < self.next_at:
            known = scope.calls.seconds(scope.use(now), scope.live)
            gap = self._gap(max(0.0, now - granted_at) if known is None else known)
            self.next_at = min(self.next_at, max(self.last_at + gap, now + SHORTEST_GAP_SECONDS))
        return ()

    def next_wake(self, scope: ScopeView, now: float, *, has_waiters: bool) -> float | None:
        return earliest(now, self.next_at) if has_waiters else None

    def _gap(self, call_seconds: float | None) -> float:
        """Return the gap after the last one: the first is as long as a refusal takes to come, each next one shorter."""
        first = FIRST_GAP_SECONDS if call_seconds is None else min(FIRST_GAP_SECONDS, GAP_IN_CALLS * call_seconds)
        return first / self.entered


AT_ONCE = 16
"""Sessions that start at once: a limit up to this costs at most eight refusals if it is twice too high."""
AT_ONCE_SHARE = 0.25
"""The same as a share of a large limit: few limits are four times too high."""
ROUNDING = 0.001
"""Part of a place: a wake-up at the computed time must find the level reached, however the time was rounded."""
REMEMBER_SECONDS = 86400.0
"""A scope without any use for a day may be forgotten, and is new again after that."""


class FirstRamp(Gate):
    """The ramp of one scope. It begins with the first start and lasts `seconds`; then the limit alone counts.

    `entered` are the places taken since then, `held` those taken before.
    """

    TAG = "first_ramp"
    relative_times: ClassVar[tuple[str, ...]] = ("began_at",)

    seconds: float
    began_at: float | None = None
    entered: int = 0
    held: int = 0
    is_over: bool = False

    def refuses(self, ticket: Ticket, scope: ScopeView, now: float) -> Reason | None:
        if SESSIONS not in ticket.scopes or not self._is_needed(scope):
            return None
        return None if scope.live + 1 <= self._level(scope, now) + ROUNDING else "pacing"

    def explain(self, ticket: Ticket, scope: ScopeView, now: float) -> Explanation:
        return Explanation(f"{scope.name} is ramping up: {scope.live} of {scope.cap} so far", self._next_at(scope))

    def active_from(self, scope: ScopeView) -> float:
        return NOW if self._is_needed(scope) else NEVER

    def _is_needed(self, scope: ScopeView) -> bool:
        """Return whether the limit is only assumed: neither stated, nor learnt, nor reached before, nor small."""
        is_learnt = scope.adaptive is not None and scope.adaptive.limit is not None
        is_known = is_learnt or scope.platform is not None
        return not (self.is_over or is_known) and AT_ONCE < scope.cap < UNLIMITED

    def is_idle(self, now: float) -> bool:
        return self.began_at is None or now > self.began_at + REMEMBER_SECONDS

    def on_grant(self, ticket: Ticket, scope: ScopeView, now: float, *, takes_place: bool) -> Sequence[GateEvent]:
        if takes_place and not self.is_over:
            if self.began_at is None:
                self.began_at, self.held = now, scope.live - 1
            self.entered += 1
            self.is_over = scope.live >= scope.cap  # it has run at its limit
        return ()

    def next_wake(self, scope: ScopeView, now: float, *, has_waiters: bool) -> float | None:
        if self.began_at is None or not self._is_needed(scope):
            return None
        if has_waiters and now < (next_at := self._next_at(scope)):
            return next_at
        return self.began_at + self.seconds

    def on_time(self, scope: ScopeView, now: float) -> Sequence[GateEvent]:
        """End the ramp when its time is over."""
        self.is_over = self.is_over or (self.began_at is not None and now >= self.began_at + self.seconds)
        return ()

    def _base(self, scope: ScopeView) -> float:
        """Return how many may start at once. Each that has ended makes room for one more: it was accepted."""
        ended = self.entered + self.held - scope.live if self.began_at is not None else 0
        return max(AT_ONCE, AT_ONCE_SHARE * scope.cap) + max(0, ended)

    def _level(self, scope: ScopeView, now: float) -> float:
        """Return how many may be live by now. What is live before the ramp began shows that the scope is in use."""
        if self.began_at is None and scope.live > 0:
            return float(scope.cap)
        passed = 0.0 if self.began_at is None else max(0.0, now - self.began_at) / self.seconds
        return self._base(scope) + passed * scope.cap

    def _next_at(self, scope: ScopeView) -> float:
        """Return when one more may start."""
        share = (scope.live + 1 - self._base(scope)) / scope.cap
        return (self.began_at or 0.0) + self.seconds * min(1.0, max(0.0, share))


SLOWER_AGAIN = 1.5
"""Each further refusal makes the interval longer by this factor: few steps find the right one."""
SHORTEST_INTERVAL_SECONDS = 0.05
"""Below this the spacing makes no difference, and is dropped."""
FIRST_INTERVAL_SECONDS = 1.0
"""The interval where too few starts were seen to measure one."""
LONGEST_INTERVAL_SECONDS = 30.0
"""Two starts a minute: slower than any provider is known to want, so a longer interval would be a mistake."""
EASE_SECONDS = 3600.0
"""How long nothing may be refused before the interval is eased: an hour, so that a tight cap is tried seldom."""
EASE_FACTOR = 0.97
"""A small step down, so that easing costs at most one refusal in a while."""


class StartSpacing(Gate):
    """Starts at least `interval` apart, learnt from refusals and eased while there are none."""

    TAG = "start_spacing"
    relative_times: ClassVar[tuple[str, ...]] = ("next_at", "ease_at", "since")

    interval: float
    next_at: float
    ease_at: float
    is_over: bool = False
    since: float | None = None

    @classmethod
    def from_starts(cls, recent: int, before: "StartSpacing | None", now: float) -> "StartSpacing":
        """Space starts so that as many fit in the span as went well in it, and further apart each time."""
        interval = BURST_SECONDS / recent if recent > 1 else FIRST_INTERVAL_SECONDS
        if before is not None:
            interval = max(interval, before.interval * SLOWER_AGAIN)
        since = now if before is None else before.since
        interval = min(interval, LONGEST_INTERVAL_SECONDS)
        return cls(interval=interval, next_at=now, ease_at=now + EASE_SECONDS, since=since)

    def refuses(self, ticket: Ticket, scope: ScopeView, now: float) -> Reason | None:
        return "pacing" if now < self.next_at and ticket.parent is None else None

    def explain(self, ticket: Ticket, scope: ScopeView, now: float) -> Explanation:
        return Explanation(f"starts in {scope.name} are {self.interval:.3g} s apart", self.next_at)

    def refuses_only_this(self, ticket: Ticket, scope: ScopeView, now: float) -> bool:
        """Return whether it waits for its turn to start: runs of a session that has ended do not."""
        return self.refuses(ticket, scope, now) is not None

    def is_idle(self, now: float) -> bool:
        return self.is_over

    def on_grant(self, ticket: Ticket, scope: ScopeView, now: float, *, takes_place: bool) -> Sequence[GateEvent]:
        if ticket.parent is None:
            self.next_at = max(self.next_at, now) + self.interval
            if now >= self.ease_at:
                self.interval *= EASE_FACTOR
                self.ease_at = now + EASE_SECONDS
                self.is_over = self.interval < SHORTEST_INTERVAL_SECONDS
        return ()

    def next_wake(self, scope: ScopeView, now: float, *, has_waiters: bool) -> float | None:
        return earliest(now, self.next_at) if has_waiters else None


class StartCap(Gate):
    """At most `live` at once, or at most `starts` more sessions, for the reason in `detail`, until it is set again.

    With `starts`, calls and runs pass. It follows from a campaign, or from what sessions use, and is set again after a
    restart, so it is not stored.
    """

    TAG = "start_cap"
    IS_STORED = False

    detail: str
    until: float
    live: int | None = None
    starts: int | None = None

    def refuses(self, ticket: Ticket, scope: ScopeView, now: float) -> Reason | None:
        is_full = self.live is not None and scope.live >= self.live
        is_over = self.starts is not None and self.starts <= 0 and SESSIONS in ticket.scopes
        return "pacing" if is_full or is_over else None

    def refuses_only_this(self, ticket: Ticket, scope: ScopeView, now: float) -> bool:
        return self.starts is not None

    def explain(self, ticket: Ticket, scope: ScopeView, now: float) -> Explanation:
        return Explanation(self.detail, self.until)

    def on_grant(self, ticket: Ticket, scope: ScopeView, now: float, *, takes_place: bool) -> Sequence[GateEvent]:
        if self.starts is not None and SESSIONS in ticket.scopes:
            self.starts -= 1
        return ()

    def next_wake(self, scope: ScopeView, now: float, *, has_waiters: bool) -> float | None:
        return earliest(now, self.until) if has_waiters else None
