"""Pauses: a scope admits nobody until a time. They only extend."""

from typing import ClassVar

from paceline.core.timed import Timed

OVERLOAD_FIRST_SECONDS = 5.0
OVERLOAD_LONGEST_SECONDS = 300.0


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
