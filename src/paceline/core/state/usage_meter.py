"""The quota side of a scope: which places are held, what they use, and the windows that this counts against.

Counting and looking only. Limits, pauses and all other gates are in `scope_state.py`.
"""

from paceline.core.gates.quota_window import Line, Window
from paceline.core.gates.window_budget import WindowHold, paced_until, window_hold
from paceline.core.gates.window_usage import Period, Use
from paceline.core.values.tickets import Ticket


class QuotaState:
    """Mutable. `place_balance` are the times at which places were freed, less those at which they were taken."""

    __slots__ = (
        "began_at",
        "cooling",
        "place_balance",
        "reserve",
        "spreading",
        "starts",
        "tokens_used",
        "used",
        "windows",
    )

    def __init__(self, reserve: float, now: float) -> None:
        self.reserve = reserve
        self.began_at = now
        self.used = 0
        self.cooling: list[float] = []
        self.place_balance = 0.0
        self.starts = 0
        self.tokens_used = 0.0
        self.windows: dict[str, Window] = {}
        self.spreading = 0
        """Those who wait and keep to the line of a window."""

    @property
    def live(self) -> int:
        """Places held by live slots."""
        return self.used - len(self.cooling)

    def use(self, now: float) -> Use:
        """What its slots have used up to now."""
        return Use(self.tokens_used, self.place_balance + self.live * now, self.starts)

    def window(self, name: str) -> Window:
        """Its window of that name, which opened at the earliest when the scope was first heard of."""
        return self.windows.setdefault(name, Window(name, period=Period(self.began_at)))

    def read_window(self, name: str, used_ratio: float, resets_at: float | None, now: float) -> None:
        """The provider told how much of it is used."""
        window = self.window(name)
        if window.is_period_over(now):
            window.begin_period(self.use(now), now)
        window.on_reading(used_ratio, resets_at, now)

    def window_hold(self, ticket: Ticket, now: float) -> WindowHold | None:
        """Of the windows that keep the ticket out, the one that does so for longest."""
        longest = None
        for window, line in self._lines(now, spread=ticket.spread):
            held = window_hold(window, ticket, line, now, reserve=self.reserve)
            if held is not None and (longest is None or held.until > longest.until):
                longest = held
        return longest

    def reserve_reached(self, now: float) -> WindowHold | None:
        """The open window of which nothing but the reserve is left, whatever those who run may still use."""
        if self.reserve and self.windows:
            use = self.use(now)
            for window in self.windows.values():
                line = window.line(use, 0, now) if window.state in ("open", "wave") else None
                if line is not None and line.used >= 1.0 - self.reserve:
                    return WindowHold(window, "reserve", line.resets_at, line)
        return None

    def window_wakes(self, now: float) -> list[float | None]:
        """When a window may let someone in by time alone."""
        times: list[float | None] = []
        spread = self.spreading > 0
        for window, line in self._lines(now, spread=spread):
            times.append(window.opens_at)
            if line is not None and (held := paced_until(line, now, reserve=self.reserve, spread=spread)) is not None:
                times.append(held[1])
        return times

    def _lines(self, now: float, *, spread: bool) -> list[tuple[Window, Line | None]]:
        """The windows, with how much of each is used where that matters."""
        if not (spread or self.reserve):
            return [(window, None) for window in self.windows.values()]
        use, live = self.use(now), self.live
        return [(window, window.line(use, live, now)) for window in self.windows.values()]

    def on_grant_in_windows(self, ticket_id: str, now: float) -> list[str]:
        """One entered: the names of windows that it is the canary of."""
        for window in self.windows.values():
            if window.is_period_over(now):
                window.begin_period(self.use(now), now)
        return [window.name for window in self.windows.values() if window.on_grant(ticket_id, now)]

    def shift(self, seconds: float) -> None:
        """The clock was set back: keep what is left of every relative wait, and what was used."""
        self.began_at -= seconds
        self.place_balance += self.live * seconds
        self.cooling = [at - seconds for at in self.cooling]
        for window in self.windows.values():
            window.shift(seconds)
