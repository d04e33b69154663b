"""What refusals teach about a scope's true capacity: the adaptive and the platform limit.

Arithmetic on numbers; nothing here counts slots or knows who waits. The rules in a paragraph:
an incident lowers the limit by one step (one, then two, four ... while incidents follow each
other without a clean spell); every minute of success under demand raises it by a tenth; at the
level that failed it waits longer, doubling with each failure there, and forgets that level once
it has held. A platform limit the provider named is tried again one above after a quarter hour, or
half an hour where that was refused before.
"""

from typing import ClassVar

from paceline.core.settings import HeadroomMode
from paceline.core.timed import Timed

CLIMB_SECONDS = 60.0
FAILED_LEVEL_SECONDS = 15 * 60.0
FAILED_LEVEL_SECONDS_MAX = 2 * 3600.0
PLATFORM_PROBE_SECONDS = 15 * 60.0
PLATFORM_REPROBE_SECONDS = 30 * 60.0


class Headroom(Timed):
    """The adaptive limit of one scope. `incident` is the sequence number of the last step."""

    relative_times: ClassVar[tuple[str, ...]] = ("incident_until", "climb_at")

    limit: int | None = None
    reduced_from: int | None = None
    failed_at: int | None = None
    failures: int = 0
    step: int = 1
    incident: int = -1
    incident_until: float | None = None
    climb_at: float | None = None
    success_since: bool = False

    def step_down(self, effective: int, mode: HeadroomMode, now: float) -> int:
        """Lower the limit one step below what failed, and say the new one."""
        lowered = max(1, effective - (self.step if mode == "adaptive" else 1))
        if self.reduced_from is None:
            self.reduced_from = effective
        self.failures = self.failures + 1 if self.failed_at == effective else 1
        self.failed_at = effective
        self.limit = lowered
        self.step *= 2
        self.success_since = False
        self.climb_at = now + self._climb_wait(lowered)
        return lowered

    def climb(self, ceiling: int | None, now: float) -> int | None:
        """Raise the limit one step after a clean spell; None means back at the ceiling."""
        assert self.limit is not None
        held_failed_level = self.failed_at is not None and self.limit >= self.failed_at
        if held_failed_level:
            self.failed_at, self.failures = None, 0
        raised = self.limit + max(1, self.limit // 10)
        if self.failed_at is not None and self.limit < self.failed_at < raised:
            raised = self.failed_at
        self.step = 1
        self.success_since = False
        if ceiling is not None and raised >= ceiling:
            self.clear()
            return None
        self.limit = raised
        self.climb_at = now + self._climb_wait(raised)
        return raised

    def clear(self) -> None:
        """Forget the reduction, not the incident it came from."""
        self.limit = self.reduced_from = self.failed_at = self.climb_at = None
        self.failures = 0
        self.step = 1

    def _climb_wait(self, level: int) -> float:
        """Longer where the next step would reach the level that failed."""
        following = level + max(1, level // 10)
        if self.failed_at is not None and following >= self.failed_at > level:
            return float(min(FAILED_LEVEL_SECONDS * 2 ** (self.failures - 1), FAILED_LEVEL_SECONDS_MAX))
        return CLIMB_SECONDS


class PlatformCap(Timed):
    """A cap the provider named. Without `probe_at` it follows the provider's readings and is not probed."""

    relative_times: ClassVar[tuple[str, ...]] = ("probe_at",)

    limit: int
    probe_at: float | None = None
    success_since: bool = False

    @classmethod
    def learnt(cls, limit: int, before: "PlatformCap | None", now: float) -> "PlatformCap":
        """From a refusal `(X/Y)`; a Y of 0 cannot be meant. Many who meet the same cap are one refusal."""
        limit = max(1, limit)
        if before is not None and before.limit == limit and before.probe_at is not None:
            before.success_since = False
            return before
        was_probed = before is not None and before.limit > limit
        wait = PLATFORM_REPROBE_SECONDS if was_probed else PLATFORM_PROBE_SECONDS
        return cls(limit=limit, probe_at=now + wait)

    def probe(self, now: float) -> int:
        """Try one more."""
        self.limit += 1
        self.success_since = False
        self.probe_at = now + CLIMB_SECONDS
        return self.limit
