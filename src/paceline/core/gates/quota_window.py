"""The quota windows of a scope as one gate: a ticket waits for the window that keeps it out longest.

Each window is a belief: when it reopens, how it is probed, and how much of it is used.

A closed window lets nobody in until `probe_at`, a moment after `resets_at` or earlier, then one canary. Its success
reopens the window in a wave. A closing that contradicts a report of an open window may be no closing at all: some CLIs
call every 429 of a login a spent window, also one for too many at once.

Never here: what a window holds (`window_usage.py`), and when to probe it (`reopening.py`).
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

import msgspec

from paceline.core.gates.gate import NEVER, NOW, Explanation, Gate, GateEvent, ScopeView, earliest
from paceline.core.gates.reopening import (
    CONTRADICTED_LOOK_SECONDS,
    LONGEST_LOOK_SECONDS,
    RESET_WOBBLE_SECONDS,
    UNTRUSTED_CONFIDENCE,
    WAVE_STARTS,
    Reopening,
    first_look,
    gap_after,
    plausible_confidence,
)
from paceline.core.gates.start_meters import LULL_SECONDS
from paceline.core.gates.window_usage import Period, UsagePlan, budget_hold, planned_use
from paceline.core.limits import AdaptiveLimit
from paceline.core.signals import Budget, QuotaClosed
from paceline.core.state.usage_meter import Use
from paceline.core.values.fields import RelativeTimes
from paceline.core.values.tickets import Reason, Ticket

CONTRADICTED_CONFIDENCE = 0.5
"""How far a closing is trusted that contradicts what was just reported: as likely right as wrong."""
MOVED_CONFIDENCE = 0.4
"""How far a reset is trusted that moved although nothing was used: a late reopening is likelier for an hour."""
TRUSTED_CONFIDENCE = 0.5
"""From here on a belief is more likely right than wrong, and is planned with."""
WINDOW_CANARY_SECONDS = 900.0
"""A canary without an answer for this long is joined by another: its turn may be long, or it may hang."""
STRUCTURED_SOURCES = ("field", "header")
LENGTH_SECONDS = {"5h": 5 * 3600.0, "daily": 86400.0, "weekly": 7 * 86400.0, "monthly": 31 * 86400.0}
"""Lengths of periods by the names of windows, as providers define them."""

FRESH_DROP_RATIO = 0.05
"""A reading that is lower by more than this belongs to a new period: within one, use only grows."""
NEW_COST_SHARE = 0.2
"""Weight of the latest reading in the cost of a start: five readings smooth out single large runs."""

NEARLY_SPENT_RATIO = 0.9
"""From this reading on a closing is no surprise: one long turn uses a tenth of a window."""
ESTIMATED_PLAN = 0.9
"""Where the use is estimated, the plan ends this far into the period.

What is left after that is still used, and a window that holds more than was estimated shows it.
"""

WindowState = Literal["open", "closed", "probing", "wave"]


class Window(RelativeTimes):
    """One quota period of a scope. `probe_at` is when the next canary may go."""

    relative_times: ClassVar[tuple[str, ...]] = ("seen_at", "probed_since", "wave_next_at", "reported_at")

    name: str
    state: WindowState = "open"
    resets_at: float | None = None
    source: str | None = None
    confidence: float = 1.0
    seen_at: float | None = None
    probe_at: float | None = None
    refusals: int = 0
    reopening: Reopening = msgspec.field(default_factory=Reopening)
    canary: str | None = None
    probed_since: float | None = None
    wave_started: int = 0
    wave_next_at: float = 0.0
    used_ratio: float | None = None
    plan_from: tuple[float, float] | None = None
    starts_at_reading: int = 0
    """The scope's starts at the last reading, less the runs that have since entered without a place."""
    cost_ratio: float = 0.0
    is_read: bool = False
    """Whether the provider has reported the use of this period."""
    is_contradicted: bool = False
    """Whether the closing contradicts what was reported just before."""
    before_doubt: AdaptiveLimit | None = None
    """The limit from before the step down that the closing in doubt brought, and nothing else since."""
    reported_at: float = 0.0
    period: Period = msgspec.field(default_factory=Period)

    def close(
        self,
        resets_at: float | None,
        source: str | None,
        confidence: float,
        now: float,
        *,
        in_doubt: bool = False,
        is_explained: bool = True,
    ) -> None:
        """Close the window after a refusal. Many sessions that meet the same closing are one refusal.

        With `in_doubt` a canary probes the window soon, and the refusal is not counted yet. Without `is_explained` the
        period was hardly used, so it cannot be spent: the window has not reopened, because its reset is late.
        """
        if self.state in ("open", "wave") or self.is_contradicted:
            self.refusals = 0
            is_late = not is_explained and not self.reopening.states(resets_at)
            self.reopening = (
                self.reopening.late(self.period.opened_at or now) if is_late else self.reopening.closed_again()
            )
            if self.resets_at is not None and first_look(self.resets_at) > now:
                self.reopening.on_stated(self.resets_at, now)
        is_first = self.state != "closed" or self.is_contradicted
        self.is_contradicted = in_doubt
        if is_first:
            self.probe_at = None
        if is_first and not in_doubt:
            self.refusals += 1
            is_stated = self.confidence >= TRUSTED_CONFIDENCE
            self.reopening.on_refused(self.resets_at if is_stated else self._end_of_period, now)
        self.state, self.canary, self.probed_since = "closed", None, None
        self.believe(resets_at, source, confidence, now)

    def believe(self, resets_at: float | None, source: str | None, confidence: float, now: float) -> None:
        """Take over news of the reset. Structured evidence outranks parsed text about the same window.

        Whatever outranks it, a stated reset is probed. A refusal that states none changes no belief.
        """
        self.reopening.on_stated(resets_at, now)
        is_ahead = self.resets_at is not None and first_look(self.resets_at) > now
        is_ahead = is_ahead and self.confidence >= TRUSTED_CONFIDENCE
        if not (is_ahead and (resets_at is None or self._outranks(source))):
            self.resets_at, self.source, self.seen_at = resets_at, source, now
            self.confidence = self._plausible(resets_at, confidence, now)
            if self.reopening.is_in_doubt:
                self.confidence = min(self.confidence, MOVED_CONFIDENCE)
        if self.state == "closed":
            look_at = self._next_look(now)
            keeps = self.probe_at is not None and self.reopening.missed_at is not None
            self.probe_at = min(self.probe_at or look_at, look_at) if keeps else look_at

    def _outranks(self, source: str | None) -> bool:
        """Return whether the present belief is better than news from `source`."""
        return self.source in STRUCTURED_SOURCES and source not in STRUCTURED_SOURCES

    def _plausible(self, resets_at: float | None, confidence: float, now: float) -> float:
        """Return how far to trust a reset: an implausible one is kept as it is, with little trust."""
        return plausible_confidence(resets_at, confidence, LENGTH_SECONDS.get(self.name), now)

    def _next_look(self, now: float) -> float:
        """Return when to look next: just after the believed reset, or earlier, because beliefs are often wrong."""
        if self.is_contradicted:
            return min(now + CONTRADICTED_LOOK_SECONDS, self.reopening.next_stated(now))
        is_plausible, is_read = self.confidence >= TRUSTED_CONFIDENCE, self.used_ratio is not None
        tried, end = self.refusals - 1, self._end_of_period
        return self.reopening.next_look(tried, end, now, is_plausible=is_plausible, is_read=is_read)

    @property
    def _end_of_period(self) -> float | None:
        """The end of the period as counted from its opening, where no stated reset is trusted."""
        if self.period.opened_at is None or self.length is None or self.confidence >= TRUSTED_CONFIDENCE:
            return None
        return self.period.opened_at + self.length

    def blocks(self, ticket: Ticket, now: float) -> bool:
        """Return whether the ticket must wait. A canary session's own runs may pass: they are the probe."""
        if self.state == "open":
            return False
        if self.state == "probing" and ticket.parent is not None and ticket.parent == self.canary:
            return False
        opens_at = self.opens_at
        return opens_at is not None and now < opens_at

    @property
    def opens_at(self) -> float | None:
        """When the next ticket may pass by time alone."""
        if self.state in ("closed", "probing"):
            return self.probe_at
        return self.wave_next_at if self.state == "wave" else None

    def is_probed_by(self, ticket: Ticket, granted_at: float) -> bool:
        """Return whether the ticket is the canary, a run of it, or an earlier canary that took its time."""
        is_canary = self.canary is not None and self.canary in (ticket.id, ticket.parent)
        return is_canary or (self.probed_since is not None and granted_at >= self.probed_since)

    def on_grant(self, ticket_id: str, now: float, *, takes_place: bool) -> bool:
        """Count a ticket that has passed. Returns True if it went as the canary."""
        self.starts_at_reading -= not takes_place
        if self.state == "closed" or (self.state == "probing" and self.probe_at is not None and now >= self.probe_at):
            self.state, self.canary, self.probe_at = "probing", ticket_id, now + WINDOW_CANARY_SECONDS
            self.probed_since = now if self.probed_since is None else self.probed_since
            return True
        if self.state == "wave":
            self.wave_started += 1
            was_awaited = now < self.wave_next_at + LULL_SECONDS
            self.wave_next_at = now + gap_after(self.wave_started, ticket_id, self.name)
            if self.wave_started > WAVE_STARTS or not was_awaited:
                self.state = "open"
        return False

    def on_canary_accepted(self, now: float) -> None:
        """Reopen in a wave: the provider has accepted the canary."""
        is_trusted = self.confidence >= TRUSTED_CONFIDENCE
        self.reopening = self.reopening.after_success(self.resets_at, is_trusted, now)
        self.state, self.canary, self.is_contradicted = "wave", None, False
        self.resets_at = self.probe_at = self.probed_since = self.before_doubt = None
        self.refusals = 0
        self.wave_started, self.wave_next_at = 0, now

    def on_canary_lost(self, now: float) -> None:
        """Close again, and allow another canary at once: this one ended without an answer."""
        self.state, self.canary, self.probe_at = "closed", None, now

    def on_reading(self, used_ratio: float, resets_at: float | None, starts: int, now: float) -> None:
        """Take over how much is used. A reading never opens a closed window: a refusal outranks it.

        `starts` are those of the scope so far.
        """
        fresh_period = (
            self.used_ratio is None or used_ratio < self.used_ratio - FRESH_DROP_RATIO or not self._is_reset(resets_at)
        )
        started = starts - self.starts_at_reading
        if self.used_ratio is not None and started and used_ratio > self.used_ratio:
            cost = (used_ratio - self.used_ratio) / started
            self.cost_ratio = (
                cost if self.cost_ratio == 0 else (1 - NEW_COST_SHARE) * self.cost_ratio + NEW_COST_SHARE * cost
            )
        if fresh_period or self.plan_from is None:
            self.plan_from = (now, used_ratio)
        self.used_ratio, self.starts_at_reading, self.is_read = used_ratio, starts, True
        if self.state in ("open", "wave") and resets_at is not None:
            self.resets_at, self.source, self.seen_at = resets_at, "header", now

    def shift(self, seconds: float) -> None:
        """Shift with the clock. A reset is a point on the calendar and stays; a probe before it is a wait from now.

        Where the clock was ahead by more than a few hours, the reset may be as wrong as it was: somebody looks sooner.
        """
        super().shift(seconds)
        resets = self.reopening.stated if self.resets_at is None else (self.resets_at, *self.reopening.stated)
        if self.probe_at is not None:
            is_at_reset = self.probe_at in map(first_look, resets)
            self.probe_at -= max(0.0, seconds - LONGEST_LOOK_SECONDS) if is_at_reset else seconds
        if self.plan_from is not None:
            self.plan_from = (self.plan_from[0] - seconds, self.plan_from[1])
        self.period.shift(seconds)
        if self.before_doubt is not None:
            self.before_doubt.shift(seconds)

    def _is_reset(self, resets_at: float | None) -> bool:
        """Return whether this is the reset that is already believed, or no reset at all."""
        if resets_at is None or self.resets_at is None:
            return resets_at is None
        return abs(resets_at - self.resets_at) <= RESET_WOBBLE_SECONDS

    # -- how much is used --------------------------------------------------------------------

    def on_spent(self, use: Use, resets_at: float | None, confidence: float, now: float) -> bool:
        """Learn the size of the window from a refusal, before it closes the window: the use since its opening.

        Returns False where that use is too small to have spent a period. Then it teaches nothing.
        """
        if self.state not in ("open", "wave"):
            return True
        is_reported = self.is_read and self.used_ratio is not None and self.used_ratio >= NEARLY_SPENT_RATIO
        if not is_reported and self.period.is_hardly_used(use, now):
            return False
        is_trusted = self._plausible(resets_at, confidence, now) >= TRUSTED_CONFIDENCE
        self.period.on_closed(use, resets_at if is_trusted else None, LENGTH_SECONDS.get(self.name), now)
        return True

    def begin_period(self, use: Use, now: float) -> None:
        """Begin a period. Readings of the period before do not count any more."""
        self.period.begin(use, now)
        self.is_read = False

    def is_period_over(self, now: float) -> bool:
        """Return whether the period has ended without a closing."""
        resets_at = self.expected_reset
        return self.state == "open" and resets_at is not None and now >= resets_at

    @property
    def expected_reset(self) -> float | None:
        """When this period ends: as the provider stated it, else one length after the opening."""
        opened_at = self.period.opened_at
        if self.resets_at is not None and (opened_at is None or self.resets_at > opened_at):
            return self.resets_at
        is_known = self.length is not None and opened_at is not None and self.period.is_seen
        return (opened_at or 0.0) + (self.length or 0.0) if is_known else None

    @property
    def length(self) -> float | None:
        """How long a period is: by the window's name, else as seen before."""
        return LENGTH_SECONDS.get(self.name) or self.period.learnt_length

    def plan(self, use: Use, live: int, now: float) -> UsagePlan | None:
        """Return how much is used by now, from a reading or else an estimate; None where nothing is known.

        A live slot counts from its start with what a slot uses on average.
        """
        resets_at = self.expected_reset
        if resets_at is None or self._plausible(resets_at, 1.0, now) < TRUSTED_CONFIDENCE:
            return None
        underway = self.period.share_of_starts(live, now)
        if self.is_read and self.used_ratio is not None and self.plan_from is not None:
            unread = max((use.starts - self.starts_at_reading) * self.cost_ratio, underway)
            return UsagePlan(self.used_ratio + unread, self.plan_from, resets_at, resets_at)
        used, opened_at = self.period.share_used(use, now), self.period.opened_at
        if used is None or opened_at is None or not self.period.is_seen:
            return None
        ends_at = opened_at + ESTIMATED_PLAN * (resets_at - opened_at)
        return UsagePlan(used + underway, (opened_at, 0.0), ends_at, resets_at, is_estimate=True)


MOST_WINDOWS = 16
"""Windows of one scope: providers have two to five, the rest were invented by whoever reports them."""
CONTRADICTION_SECONDS = 60.0
"""A window that was reported open so shortly before it "closes", while several ran, may still be open. A minute is
about one turn."""


def note_open(reports: dict[str, float], window: str, now: float) -> None:
    reports.pop(window, None)
    reports[window] = now
    if len(reports) > MOST_WINDOWS:
        del reports[next(iter(reports))]


def is_contradicted(reports: dict[str, float], window: Window, closed: QuotaClosed, now: float) -> bool:
    """Return whether a closing contradicts what was reported moments ago, or what it says itself."""
    if window.state == "closed":
        return window.is_contradicted  # many sessions that meet the same closing are one
    if closed.source in STRUCTURED_SOURCES and UNTRUSTED_CONFIDENCE < closed.confidence <= CONTRADICTED_CONFIDENCE:
        return True
    open_at = reports.get(window.name)
    if open_at is None or now - open_at > CONTRADICTION_SECONDS:
        return False
    return not window.is_read or window.used_ratio is None or window.used_ratio < NEARLY_SPENT_RATIO


UNNAMED_WINDOW = "quota"
"""The window of a signal that names none."""


class WindowHold(msgspec.Struct, frozen=True):
    """A window that refuses a ticket, and until when. `plan` is set if the window is open and its use is the reason."""

    window: Window
    reason: Literal["window_closed", "reserve", "pacing"]
    until: float
    plan: UsagePlan | None = None


class QuotaGate(Gate):
    """Windows by name. Open ones refuse only where a reserve is kept, or a `spread` ticket keeps to its plan."""

    TAG = "quota_windows"

    windows: dict[str, Window] = msgspec.field(default_factory=dict)
    open_reports: dict[str, float] = msgspec.field(default_factory=dict)
    """When each window was last reported open."""

    def window(self, name: str, began_at: float, now: float) -> Window:
        """Return the window of that name. A new one opened no earlier than the first use of the scope.

        One too many replaces the open one that was reported least recently. Where none is open, the window without
        a name stands for all others.
        """
        if name not in self.windows and len(self.windows) >= MOST_WINDOWS:
            idle = [window for window in self.windows.values() if window.state == "open"]
            if idle:
                del self.windows[min(idle, key=lambda window: window.reported_at).name]
            else:
                name = UNNAMED_WINDOW
        window = self.windows.setdefault(name, Window(name, period=Period(began_at)))
        window.reported_at = now
        return window

    def on_reading(self, name: str, reading: Budget, scope: ScopeView, began_at: float, now: float) -> None:
        """Take over the provider's own reading of how much of the window is used."""
        assert reading.used_ratio is not None
        window = self.window(name, began_at, now)
        if window.name != name:
            return  # only closed ones are kept
        use = scope.use(now)
        if window.is_period_over(now):
            window.begin_period(use, now)
        window.on_reading(reading.used_ratio, reading.resets_at, use.starts, now)

    # -- deciding and explaining -------------------------------------------------------------

    def hold(self, ticket: Ticket, scope: ScopeView, now: float) -> WindowHold | None:
        """Return the hold of the window that keeps the ticket out longest."""
        longest = None
        for window, plan in self._plans(scope, now, spread=ticket.spread):
            held = _hold(window, ticket, plan, scope.reserve, now)
            if held is not None and (longest is None or held.until > longest.until):
                longest = held
        return longest

    def refuses(self, ticket: Ticket, scope: ScopeView, now: float) -> Reason | None:
        held = self.hold(ticket, scope, now)
        return None if held is None else held.reason

    def explain(self, ticket: Ticket, scope: ScopeView, now: float) -> Explanation:
        held = self.hold(ticket, scope, now)
        assert held is not None
        return Explanation(_describe(held, scope, now), held.until)

    def active_from(self, scope: ScopeView) -> float:
        """Return `NOW` while a window may refuse, else the end of the first period: the next start begins another."""
        if scope.reserve or scope.spread_waiters or any(window.state != "open" for window in self.windows.values()):
            return NOW
        resets = (window.expected_reset for window in self.windows.values())
        return min((at for at in resets if at is not None), default=NEVER)

    def is_idle(self, now: float) -> bool:
        return not self.windows

    def reserve_reached(self, scope: ScopeView, now: float) -> WindowHold | None:
        """Return the open window of which only the reserve is left, whatever live slots may still use."""
        if not scope.reserve:
            return None
        use = scope.use(now)
        for window in self.windows.values():
            plan = window.plan(use, 0, now) if window.state in ("open", "wave") else None
            if plan is not None and plan.used >= 1.0 - scope.reserve:
                return WindowHold(window, "reserve", plan.resets_at, plan)
        return None

    # -- what happens ------------------------------------------------------------------------

    def on_grant(self, ticket: Ticket, scope: ScopeView, now: float, *, takes_place: bool) -> Sequence[GateEvent]:
        events = []
        for window in self.windows.values():
            if window.is_period_over(now):
                window.begin_period(scope.use(now), now)
        for window in self.windows.values():
            if window.on_grant(ticket.id, now, takes_place=takes_place):
                events.append(GateEvent("window.canary", {"window": window.name, "ticket": ticket.id}))
        return events

    def awaits_success(self, scope: ScopeView) -> bool:
        """Return whether a canary is out, or the plan of an open window is followed: its use has grown."""
        return self.active_from(scope) == NOW

    def on_success(self, ticket: Ticket | None, granted_at: float, scope: ScopeView, now: float) -> Sequence[GateEvent]:
        """Reopen each window whose canary the ticket was."""
        events = []
        for window in self.windows.values():
            if ticket is not None and window.state == "probing" and window.is_probed_by(ticket, granted_at):
                window.on_canary_accepted(now)
                window.begin_period(scope.use(now), now)
                events.append(GateEvent("window.reopened", {"window": window.name}, lets_in=True))
        return events

    @property
    def canaries(self) -> Sequence[str]:
        return [window.canary for window in self.windows.values() if window.canary is not None]

    def on_canary_lost(self, ticket_id: str | None, now: float) -> bool:
        """Allow another canary if the ticket (None: any) was one that got no answer. Returns whether it was."""
        lost = [
            window
            for window in self.windows.values()
            if (window.state == "probing" if ticket_id is None else window.canary == ticket_id)
        ]
        for window in lost:
            window.on_canary_lost(now)
        return bool(lost)

    # -- time --------------------------------------------------------------------------------

    def next_wake(self, scope: ScopeView, now: float, *, has_waiters: bool) -> float | None:
        if not has_waiters:
            return None
        times: list[float | None] = []
        spread = scope.spread_waiters > 0
        for window, plan in self._plans(scope, now, spread=spread):
            times.append(window.opens_at)
            if plan is not None and (held := budget_hold(plan, now, reserve=scope.reserve, spread=spread)) is not None:
                times.append(held[1])
        return earliest(now, *times)

    def shift(self, seconds: float) -> None:
        for window in self.windows.values():
            window.shift(seconds)
        self.open_reports = {name: at - seconds for name, at in self.open_reports.items()}

    def _plans(self, scope: ScopeView, now: float, *, spread: bool) -> list[tuple[Window, UsagePlan | None]]:
        """Return the windows, with the plan of each where its use matters."""
        if not (spread or scope.reserve):
            return [(window, None) for window in self.windows.values()]
        use, live = scope.use(now), scope.live
        return [(window, window.plan(use, live, now)) for window in self.windows.values()]


def _hold(window: Window, ticket: Ticket, plan: UsagePlan | None, reserve: float, now: float) -> WindowHold | None:
    if window.blocks(ticket, now) and window.opens_at is not None:
        return WindowHold(window, "pacing" if window.state == "wave" else "window_closed", window.opens_at)
    held = budget_hold(plan, now, reserve=reserve, spread=ticket.spread) if plan is not None else None
    return None if held is None else WindowHold(window, held[0], held[1], plan)


def _describe(held: WindowHold, scope: ScopeView, now: float) -> str:
    window = held.window
    what = f"the {window.name} window of {scope.name}"
    if held.plan is not None:
        return _describe_use(what, held.reason, held.plan, scope.reserve, now)
    if window.state == "wave":
        return f"{what} reopens in a wave"
    if window.state == "probing":
        return f"{what} is being probed by {window.canary}"
    late = window.reopening.describe(now)
    if late is not None:
        return f"{what} {late}"
    return f"{what} is spent" if window.resets_at is not None else f"{what} is spent, and its reset is unknown"


def _describe_use(what: str, reason: Reason, plan: UsagePlan, reserve: float, now: float) -> str:
    used = f"{plan.used:.0%} of {what} is used"
    if plan.is_estimate:
        used = f"about {used}, going by what it has held before"
    if reason == "reserve":
        return f"{used}; {reserve:.0%} is kept in reserve"
    return f"{used}; spread to the reset it would be {planned_use(plan, now, reserve=reserve):.0%} by now"
