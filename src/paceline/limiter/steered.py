"""What a person or a program tells a limiter: limits, cooldowns, and what was learnt of a provider."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from paceline.core import Governor
from paceline.core.signals import RateLimited, Signal
from paceline.core.values.scopes import RUNS, SESSIONS
from paceline.core.values.settings import Cooldown
from paceline.metrics import Measures


class SteeredLimits:
    """Takes effect at once, for those who wait too."""

    measures: Measures | None = None
    """Where refusals are counted, if anywhere."""
    _governor: Governor
    _now: Callable[[], float]

    if TYPE_CHECKING:  # what the Limiter brings

        def _attend(self) -> None: ...

    def set_limit(self, scope: str, limit: int | None) -> None:
        """Set a limit by hand, for a scope or a pattern; what was learnt there is forgotten."""
        self._governor.set_limit(scope, limit, now=self._now())
        self._attend()

    def get_limit(self, scope: str) -> int | None:
        """The configured limit."""
        return self._governor.get_limit(scope)

    def remove_limit(self, scope: str) -> None:
        """Unlimited from now on; live slots stay counted, a pause stays."""
        self._governor.remove_limit(scope, now=self._now())
        self._attend()

    def restore_limit(self, scope: str) -> None:
        """Back to the configured limit: forget what was learnt."""
        self._governor.restore_limit(scope, now=self._now())
        self._attend()

    def limits(self) -> dict[str, int]:
        """Every configured limit by scope or pattern; the global pool is in `status`."""
        return {scope: limit for scope, limit in self._governor.limits().items() if scope not in (SESSIONS, RUNS)}

    def set_cooldown(self, scope: str, cooldown: Cooldown) -> None:
        """How long a released slot still counts in the scope: seconds, or "auto" to learn it from usage readings."""
        self._governor.set_cooldown(scope, cooldown, now=self._now())

    def get_cooldown(self, scope: str) -> float:
        return self._governor.get_cooldown(scope)

    def cooldowns(self) -> dict[str, Cooldown]:
        """Every cooldown that was set, by scope or pattern."""
        return self._governor.cooldowns()

    def report(self, scope: str, signal: Signal) -> None:
        """Tell what was learnt about a scope: any signal of `paceline.core.signals`."""
        self._governor.report(scope, signal, now=self._now())
        if self.measures is not None:
            self.measures.reported(scope, signal)
        self._attend()

    def report_rate_limit(self, scope: str, retry_after: float | None = None) -> None:
        self.report(scope, RateLimited(retry_after=retry_after))

    def lift_hold(self, scope: str) -> None:
        """A person mended what held the account."""
        self._governor.lift_hold(scope, now=self._now())
        self._attend()
