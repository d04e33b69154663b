"""A limit that the provider named itself, and how it is probed one above."""

from typing import ClassVar

from paceline.core.values.relative_time import RelativeTimes

CLIMB_SECONDS = 60.0
"""A probe that went well is followed by the next after a minute: long enough for a refusal to come."""
FIRST_PROBE_SECONDS = 15 * 60.0
"""When a named limit is first tried one above: it is the provider's own word, so it is trusted for a while."""
NEXT_PROBE_SECONDS = 30 * 60.0
"""The same after a probe that was refused: the limit was confirmed, so it is trusted for longer."""


class PlatformCap(RelativeTimes):
    """A cap the provider named. Without `probe_at` it follows the provider's readings and is not probed."""

    relative_times: ClassVar[tuple[str, ...]] = ("probe_at",)

    limit: int
    probe_at: float | None = None
    success_since: bool = False

    @classmethod
    def learnt(cls, limit: int, before: "PlatformCap | None", now: float) -> "PlatformCap":
        """Learn from a refusal `(X/Y)`. A Y of 0 is not a limit. Many slots that meet the same cap are one refusal."""
        limit = max(1, limit)
        if before is not None and before.limit == limit and before.probe_at is not None:
            before.success_since = False
            return before
        was_probed = before is not None and before.limit > limit
        wait = NEXT_PROBE_SECONDS if was_probed else FIRST_PROBE_SECONDS
        return cls(limit=limit, probe_at=now + wait)

    def on_success(self) -> None:
        """Record a success: a probe needs one."""
        if self.probe_at is not None:
            self.success_since = True

    def probe(self, now: float) -> int:
        """Try one more. Returns the new limit."""
        self.limit += 1
        self.success_since = False
        self.probe_at = now + CLIMB_SECONDS
        return self.limit
