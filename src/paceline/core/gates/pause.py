"""Pauses: a scope admits nobody until a time. They only extend. And how those who waited come back after one."""

from typing import ClassVar

from paceline.core.values.relative_time import Timed

OVERLOAD_FIRST_SECONDS = 5.0
OVERLOAD_LONGEST_SECONDS = 300.0
REENTRY_FIRST_SECONDS = 2.0
REENTRY_LAST_SECONDS = 0.1
REENTRY_LULL_SECONDS = 30.0


class Pause(Timed):
    """`overloads` counts refusals in a row that were the provider's own trouble."""

    relative_times: ClassVar[tuple[str, ...]] = ("until",)

    until: float | None = None
    overloads: int = 0

    def extend(self, until: float) -> bool:
        """True if the pause grew; a later, shorter wait never shortens it."""
        if self.until is not None and until <= self.until:
            return False
        self.until = until
        return True

    def overload_wait(self) -> float:
        """Doubling from 5 s to 5 min while the trouble lasts."""
        wait = min(OVERLOAD_FIRST_SECONDS * 2**self.overloads, OVERLOAD_LONGEST_SECONDS)
        self.overloads = min(self.overloads + 1, 16)
        return float(wait)


class Reentry(Timed):
    """Those who waited out a refusal come back in a wave: if the first is refused too, the rest never went."""

    relative_times: ClassVar[tuple[str, ...]] = ("next_at",)

    next_at: float
    entered: int = 0

    def on_grant(self, now: float) -> bool:
        """One entered; false once the wave is over: all are in, or nobody took their turn for a while."""
        is_lull = now > self.next_at + REENTRY_LULL_SECONDS
        self.entered += 1
        gap = REENTRY_FIRST_SECONDS / self.entered
        self.next_at = now + gap
        return gap > REENTRY_LAST_SECONDS and not is_lull
