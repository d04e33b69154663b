"""The quota windows of a scope as one gate: a ticket waits for the window that keeps it out longest."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from paceline.core.gates.gate import NEVER, NOW, Explanation, Gate, GateEvent, ScopeView, earliest
from paceline.core.gates.quota_window import MOST_WINDOWS, Window
from paceline.core.gates.window_usage import Period, UsagePlan, budget_hold, planned_use
from paceline.core.signals import Budget
from paceline.core.values.tickets import Reason, Ticket

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
        """The tickets that probe a window."""
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
