"""What refusals teach about a scope's true capacity: the adaptive and the platform limit.

Arithmetic on numbers; nothing here counts slots or knows who waits. The rules in a paragraph: a
refusal lowers the limit to just under the level that failed; where that level is not known, by one,
then two, four ... while incidents follow each other; where a session is refused in mid-run, to 0.85
of what ran. From what worked, one slot more is tried after a while, two, four ... more as long as all
are accepted. A try that fails makes the wait for the next longer, up to half a day; one that succeeds,
and a fall that nobody tried for, make it shorter: how often the provider changes is learnt. A start
that is refused seconds after a release says nothing about the limit but that the provider's count
lags: then released slots count for longer. A platform limit the provider named is tried again one
above after a quarter hour, or half an hour where that was refused before.
"""

import math
from typing import ClassVar

import msgspec

from paceline.core.settings import HeadroomMode
from paceline.core.timed import Timed

FIRST_PATIENCE_SECONDS = 240.0
SHORTEST_PATIENCE_SECONDS = 120.0
LONGEST_PATIENCE_SECONDS = 43200.0
AFTER_FAILED_TRY = 2.0
AFTER_SUCCESS = 0.4
DOUBT_GROWS = 3.0
AFTER_CHANGE = 0.5
HOLD_SECONDS = 15.0
"""How long a tried level must stand before the next is tried."""
LOOK_AGAIN_SECONDS = 5.0
BELOW_FAILED_SECONDS = 30.0
SHED_TO = 0.85
LONGEST_LAG_SECONDS = 30.0
LIKELY_LAG_SECONDS = 6.0
LONGEST_LIKELY_LAG_SECONDS = 12.0
LAG_MARGIN = 1.4
LAG_FADES = 0.9998
"""Per release: where one in a thousand is refused for its lag, a longer cooldown would cost more than it saves."""
KEPT_RELEASES = 16
CLIMB_SECONDS = 60.0
PLATFORM_PROBE_SECONDS = 15 * 60.0
PLATFORM_REPROBE_SECONDS = 30 * 60.0


class Headroom(Timed):
    """The adaptive limit of one scope. `incident` is the sequence number of the last step.

    `worked_at` is the level that held; a `limit` above it is being tried. `lag` is how long the provider
    was seen to count a slot after its release.
    """

    relative_times: ClassVar[tuple[str, ...]] = ("incident_until", "climb_at", "retry_at")

    limit: int | None = None
    reduced_from: int | None = None
    worked_at: int | None = None
    failed_at: int | None = None
    patience: float = FIRST_PATIENCE_SECONDS
    stride: int = 1
    step: int = 1
    incident: int = -1
    paced_incident: int = -1
    incident_until: float | None = None
    climb_at: float | None = None
    success_since: bool = False
    lag: float = 0.0
    is_blamed: bool = False
    was_step: bool = False
    doubted_at: int | None = None
    doubt: float = FIRST_PATIENCE_SECONDS
    retry_at: float | None = None
    releases: list[float] = msgspec.field(default_factory=list)

    # -- down ----------------------------------------------------------------------------------

    def step_down(self, effective: int, mode: HeadroomMode, now: float) -> int:
        """One step below what failed, twice as far each time incidents follow each other; the new limit."""
        lowered = effective - (self.step if mode == "adaptive" else 1)
        self.step *= 2
        self.fall_to(lowered, effective, now, failed_at=effective)
        self.worked_at = None
        return max(1, lowered)

    def shed(self, effective: int, live: int, now: float) -> int:
        """What ran was refused in mid-run: fewer than that must do, how many is not known."""
        factor = SHED_TO**self.step
        self.step *= 2
        self._be_patient(AFTER_CHANGE)
        self.doubted_at, self.doubt = None, FIRST_PATIENCE_SECONDS
        return self.fall_to(math.ceil(live * factor), effective, now, failed_at=live)

    def fall_to(self, level: int, effective: int, now: float, *, failed_at: int) -> int:
        """The level holds, what was above it failed; the new limit."""
        if self.reduced_from is None:
            self.reduced_from = effective
        self.limit = self.worked_at = max(1, min(level, effective - 1))
        self.failed_at = max(failed_at, self.limit + 1)
        self.stride = 1
        self.success_since = self.is_blamed = False
        self.retry_at = now + self.patience
        self.climb_at = self.retry_at if self.limit + 1 == self.failed_at else now + BELOW_FAILED_SECONDS
        return self.limit

    def refuse_start(self, level: int, proven: int, effective: int, now: float) -> int | None:
        """A start at `level` was refused while `proven` others went well; the new limit, None where it stays."""
        held = self.worked_at
        if held is None:
            return self.fall_to(proven, effective, now, failed_at=proven + 1)
        if level > held or (self.is_trying and level == held):
            if self.stride == 1:  # else it is only the end of a climb that went well
                self._be_patient(AFTER_FAILED_TRY)
            return self.fall_to(max(proven, held), effective, now, failed_at=max(proven, held) + 1)
        unnoticed = held - level + 1
        age = now - self.releases[-unnoticed] if unnoticed <= len(self.releases) else math.inf
        if self.is_blamed or age > LONGEST_LAG_SECONDS:
            return self._fall_from_change(proven, effective, now)
        if age > max(LIKELY_LAG_SECONDS, min(LAG_MARGIN * self.lag, LONGEST_LIKELY_LAG_SECONDS)):
            return self._fall_from_doubt(held, effective, now)
        self.lag = max(self.lag, age * LAG_MARGIN)
        self.is_blamed = True
        return None

    def _fall_from_change(self, proven: int, effective: int, now: float) -> int:
        """The capacity fell: what is known about the levels above is worth less."""
        self._be_patient(AFTER_CHANGE)
        self.doubted_at, self.doubt = None, FIRST_PATIENCE_SECONDS
        return self.fall_to(proven, effective, now, failed_at=proven + 1)

    def _fall_from_doubt(self, held: int, effective: int, now: float) -> int:
        """It may be a long lag or a lower cap: one slot is kept free for longer each time."""
        failed_at, retry_at = self.failed_at, self.retry_at
        lowered = self.fall_to(held - 1, effective, now, failed_at=held)
        self.failed_at, self.retry_at = failed_at, retry_at
        self.doubted_at, self.is_blamed = held, True
        self.climb_at = now + self.doubt
        self.doubt = min(self.doubt * DOUBT_GROWS, LONGEST_PATIENCE_SECONDS)
        return lowered

    def _be_patient(self, factor: float) -> None:
        self.patience = min(max(self.patience * factor, SHORTEST_PATIENCE_SECONDS), LONGEST_PATIENCE_SECONDS)

    def on_release(self, now: float) -> None:
        self.lag *= LAG_FADES
        self.releases.append(now)
        if len(self.releases) > KEPT_RELEASES:
            del self.releases[0]

    # -- up ------------------------------------------------------------------------------------

    def climb(self, ceiling: int | None, now: float) -> int | None:
        """What was tried held: try more; None means back at the ceiling."""
        assert self.limit is not None
        if self.is_trying:
            self.stride *= 2
        if self.failed_at is not None and self.limit >= self.failed_at:
            self.failed_at, self.retry_at = None, None
            self.doubted_at, self.doubt = None, FIRST_PATIENCE_SECONDS
            self._be_patient(AFTER_SUCCESS)
        self.worked_at = self.limit
        self.step = 1
        self.success_since = False
        if self.failed_at == self.limit + 1 and self.retry_at is not None and now < self.retry_at:
            self.stride, self.climb_at = 1, self.retry_at
            return self.limit
        raised = self.limit + min(self.stride, max(1, self.limit // 2))
        for level in (self.doubted_at, self.failed_at):
            if level is not None and self.limit < level <= raised:
                raised = level if level == self.limit + 1 else level - 1
        if ceiling is not None and raised >= ceiling:
            self.limit = self.reduced_from = self.climb_at = None
            return None
        self.limit = raised
        self.climb_at = now + HOLD_SECONDS
        return raised

    @property
    def is_trying(self) -> bool:
        """Whether a level above what worked is being tried."""
        return self.limit is not None and self.worked_at is not None and self.limit > self.worked_at

    def look_again(self, now: float) -> None:
        """What is tried has not been reached yet."""
        self.climb_at, self.success_since = now + LOOK_AGAIN_SECONDS, True

    def clear(self) -> None:
        """Forget the reduction, not the incident it came from."""
        self.limit = self.reduced_from = self.worked_at = self.failed_at = self.climb_at = None
        self.patience, self.stride, self.step = FIRST_PATIENCE_SECONDS, 1, 1
        self.lag, self.is_blamed = 0.0, False
        self.doubted_at, self.doubt, self.retry_at = None, FIRST_PATIENCE_SECONDS, None

    def shift(self, seconds: float) -> None:
        super().shift(seconds)
        self.releases = [at - seconds for at in self.releases]


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
