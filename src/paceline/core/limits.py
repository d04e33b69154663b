"""Limits of how many at once, as refusals and the provider's own words taught them.

- `AdaptiveLimit`. A refused start lowers the limit to just under the level that failed. Where that level is not known,
  it falls by one, then two, four ... while incidents follow each other. Sessions refused in mid-run lower it to 0.85 of
  what ran. From the level that worked, one slot more is tried after half an hour, then two, four ... more while all are
  accepted. A failed try doubles the wait for the next, up to half a day; a success ends the long waits
- `ReleaseLag`: how long the provider still counts a slot after its release. A start refused seconds after a release is
  blamed on that. If the next start is refused as well, the capacity fell: the limit is what went well
- `StartBursts`: how many sessions a provider has accepted in a short time. More at once may be too many, at any level
- `Incidents`: one capacity problem at the provider lowers the limit at most once
- `PlatformCap`: a limit that the provider named itself, and how it is probed one above

Here: arithmetic on numbers. Never here: slots, and who waits.
"""

import math
from typing import ClassVar

import msgspec

from paceline.core.values.fields import RelativeTimes
from paceline.core.values.settings import HeadroomMode

UNLIMITED = 1 << 60
"""Stands for no limit where numbers are compared: more than can ever be counted, and still a small integer."""


def smallest(*limits: int | None) -> int | None:
    """Return the smallest known limit, never below 1; None where none is known."""
    known = [limit for limit in limits if limit is not None]
    return max(1, min(known)) if known else None


class Incidents(RelativeTimes):
    """Sequence numbers of the last incidents, and the end of the pause that the last one brought.

    Refusals that are about a rate or the spacing of starts are numbered apart, as `last_paced`.
    `was_step` is set while the last one has changed a limit or a rate, and no slow start has followed yet.
    `unanswered` is how long was waited after the last one, until one that was let in after it goes well.
    """

    relative_times: ClassVar[tuple[str, ...]] = ("until",)

    last: int = -1
    last_paced: int = -1
    until: float | None = None
    was_step: bool = False
    unanswered: float | None = None

    def waited_too_little(self, usual: float, now: float) -> bool:
        """Return whether a refusal now follows the last one at once, after a wait shorter than the usual one.

        Then the provider's penalty lasts longer than it stated.
        """
        if self.unanswered is None or self.until is None:
            return False
        return self.unanswered < usual and now <= self.until + usual


FIRST_LAG_SECONDS = 1.0
"""What the first lesson begins with: a provider whose lag is noticed at all lags by seconds."""
LONGEST_LAG_SECONDS = 30.0
"""A start refused longer than this after the releases before it was not refused for their lag."""
FIRST_GROWTH = 1.5
"""What the first lesson adds, as a share. The n-th adds an n-th of it: each knows more than the one before."""
LEAST_GROWTH = 0.25
"""What every lesson adds at least, so that a lag that grew is learnt as well."""
REFUSED_SHARE = 0.0015
"""The share of starts that may be refused for the lag: to avoid these too would cost more places than it saves."""
MOST_COOLING = 0.25
"""The share of places that may cool down on average: where calls are short, a lag of seconds would block them all."""
KEPT_RELEASES = 16
"""Releases to remember: enough for their rate, and for the gap between a limit and what was running."""


class ReleaseLag(msgspec.Struct):
    """The learnt lag of one scope. Released slots are counted for so many `seconds`.

    `lessons` are the refusals blamed on it. `unblamed_seconds` is what it was before the last of them, until a success
    confirms that one. It grows with each lesson and shrinks with each release, so that it settles where the share
    `REFUSED_SHARE` of the starts is refused.
    """

    seconds: float = 0.0
    lessons: int = 0
    unblamed_seconds: float | None = None
    releases: list[float] = []

    def on_release(self, now: float) -> None:
        self.releases.append(now)
        if len(self.releases) > KEPT_RELEASES:
            del self.releases[0]
        self.seconds *= 1.0 - REFUSED_SHARE * math.log(self._growth())

    def ages(self, count: int, now: float) -> list[float]:
        return [now - at for at in self.releases[-count:]]

    @property
    def is_blamed(self) -> bool:
        """Whether the last refusal was blamed on the lag, and nothing has gone well since."""
        return self.unblamed_seconds is not None

    def blame(self, seen: float, places: int, now: float) -> None:
        """Count released slots for longer, as far as most of the places stay usable."""
        self.unblamed_seconds = self.seconds
        self.lessons += 1
        longer = max(FIRST_LAG_SECONDS, self.seconds, seen) * self._growth()
        seconds_per_release = max(1.0, now - self.releases[0]) / len(self.releases) if self.releases else math.inf
        self.seconds = min(LONGEST_LAG_SECONDS, longer, MOST_COOLING * places * seconds_per_release)

    def take_back_blame(self) -> None:
        """Undo the last blame: the next start was refused too, so the lag was not the cause."""
        if self.unblamed_seconds is not None:
            self.seconds, self.unblamed_seconds = self.unblamed_seconds, None
            self.lessons -= 1

    def clear(self) -> None:
        """Forget what was learnt, not when slots were released."""
        self.seconds, self.lessons, self.unblamed_seconds = 0.0, 0, None

    def _growth(self) -> float:
        return 1.0 + max(LEAST_GROWTH, FIRST_GROWTH / max(1, self.lessons))

    def shift(self, seconds: float) -> None:
        self.releases = [at - seconds for at in self.releases]


def total_age(ages: list[float], count: int) -> float:
    """Return the sum of the ages; infinite where fewer than `count` are known."""
    return sum(ages) if len(ages) == count else math.inf


BURST_SECONDS = 10.0
"""Starts within so many seconds are one burst: providers average starts over about this."""
ROUNDING_SECONDS = 0.01
"""A start so little less than a burst ago is no part of it: spaced starts fall on its edge, and times are rounded."""
FEWEST_IN_BURST = 3
"""Accepted starts that a refused one must follow to be one of a burst: two are no crowd."""
LEAST_LEVEL = 0.25
"""Below this share of the limit a refused burst is no news of the level: few limits are four times too high."""


class StartBursts(msgspec.Struct):
    """When recent sessions that were accepted had started, and the most of them within one burst."""

    accepted: list[float] = []
    most: int = 0

    def on_accepted(self, granted_at: float) -> None:
        self.accepted = [*self._recent(granted_at), granted_at]
        self.most = max(self.most, len(self.accepted))

    def learn(self, live: list[float]) -> None:
        """Begin with the starts of live sessions, where nothing has been counted yet."""
        if not self.accepted and live:
            self.accepted = live
            self.most = max(self.most, len(live))

    def size(self, at: float) -> int:
        return len(self._recent(at))

    def is_over_at(self, at: float) -> float:
        """Return when the first of the burst up to a time is no part of one any more."""
        return min(self._recent(at), default=at - BURST_SECONDS) + BURST_SECONDS

    def is_exceeded_by(self, granted_at: float) -> bool:
        """Return whether a start at that time made a larger burst than any that went well."""
        return self.size(granted_at) >= max(FEWEST_IN_BURST, self.most)

    def _recent(self, at: float) -> list[float]:
        return [start for start in self.accepted if start > at - BURST_SECONDS + ROUNDING_SECONDS]

    def shift(self, seconds: float) -> None:
        self.accepted = [at - seconds for at in self.accepted]


CLIMB_SECONDS = 60.0
"""A probe that went well is followed by the next after a minute: long enough for a refusal to come."""
FIRST_PROBE_SECONDS = 900.0
"""When a named limit is first tried one above: it is the provider's own word, so it is trusted for a while."""
SHORTEST_PATIENCE_SECONDS = 1800.0
"""How long a level that failed is left alone at first, and at least. A named limit that a probe confirmed, too."""


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
        wait = SHORTEST_PATIENCE_SECONDS if was_probed else FIRST_PROBE_SECONDS
        return cls(limit=limit, probe_at=now + wait)

    def on_success(self) -> None:
        if self.probe_at is not None:
            self.success_since = True

    def probe(self, now: float) -> int:
        """Try one more. Returns the new limit."""
        self.limit += 1
        self.success_since = False
        self.probe_at = now + CLIMB_SECONDS
        return self.limit


LONGEST_PATIENCE_SECONDS = 43200.0
"""At most half a day: a limit that grew is found within the day, at two refused starts a day."""
AFTER_FAILED_TRY = 2.0
"""A try that failed doubles the wait for the next: a provider that does not change is asked ever more seldom."""
HOLD_SECONDS = 15.0
"""How long a level stands before a higher one is tried that has not failed: refusals come within seconds."""
SHED_TO = 0.85
"""What stays of the level when sessions are refused in mid-run: it ends the refusals, and most work continues."""


class AdaptiveLimit(RelativeTimes):
    """The adaptive limit of one scope: how many at once, as refusals taught it.

    `worked_at` is the level that held. The limit is higher while a higher level is tried.
    """

    relative_times: ClassVar[tuple[str, ...]] = ("climb_at", "retry_at", "refused_at")

    limit: int | None = None
    reduced_from: int | None = None
    worked_at: int | None = None
    failed_at: int | None = None
    refused_level: int | None = None
    refused_at: float | None = None
    patience: float = SHORTEST_PATIENCE_SECONDS
    stride: int = 1
    step: int = 1
    climb_at: float | None = None
    success_since: bool = False
    is_trying: bool = False
    ended_when_full: int = 0
    """Slots that ended while all places were taken, since the limit changed."""
    contradicts_reading: bool = False
    """Whether sessions were refused in mid-run although the provider's reading left room for them."""
    retry_at: float | None = None
    lag: ReleaseLag = msgspec.field(default_factory=ReleaseLag)
    incidents: Incidents = msgspec.field(default_factory=Incidents)
    bursts: StartBursts = msgspec.field(default_factory=StartBursts)

    # -- down ----------------------------------------------------------------------------------

    def step_down(self, effective: int, mode: HeadroomMode, now: float) -> int:
        """Lower the limit by one step, which doubles while incidents follow each other. Returns the new limit."""
        lowered = effective - (self.step if mode == "adaptive" else 1)
        if mode == "adaptive":  # in other modes no climb ever resets the step
            self.step *= 2
        self.fall_to(lowered, effective, now, failed_at=effective)
        self.limit, self.worked_at = max(1, lowered), None
        return self.limit

    def shed(self, effective: int, live: int, now: float) -> int:
        """Lower the limit to a share of what ran, because sessions were refused in mid-run. Returns the new limit."""
        self.lag.take_back_blame()
        ran = min(live, effective)
        return self.fall_to(min(math.ceil(ran * SHED_TO), ran - 1), effective, now, failed_at=ran)

    def fall_to(self, level: int, effective: int, now: float, *, failed_at: int) -> int:
        """Lower the limit to a level that holds, below one that failed. Returns the new limit."""
        if self.reduced_from is None:
            self.reduced_from = effective
        self.worked_at = max(1, level)
        self.failed_at = max(failed_at, self.worked_at + 1)
        self.refused_level, self.refused_at = self.failed_at, now
        self.stride, self.ended_when_full = 1, 0
        self.success_since, self.lag.unblamed_seconds = False, None
        self.retry_at = now + self.patience
        self.climb_at = self.retry_at if self.worked_at + 1 == self.failed_at else now + HOLD_SECONDS
        return self._hold(self.worked_at)

    def _hold(self, level: int) -> int:
        self.limit, self.is_trying = level, False
        return level

    def refuse_start(self, level: int, proven: int, effective: int, now: float) -> int | None:
        """Learn from a start refused at `level` while `proven` others went well.

        Returns the new limit; None where it stays.
        """
        held = self.worked_at
        if held is None:
            level = min(proven, effective - 1)
            return self.fall_to(level, effective, now, failed_at=level + 1)
        if level > held:
            return self._fail_try(max(proven, held), effective, now)
        still_counted = held - level + 1  # so many released slots would explain the refusal
        ages = self.lag.ages(still_counted, now)
        if self.lag.is_blamed or total_age(ages, still_counted) > LONGEST_LAG_SECONDS:
            self.lag.take_back_blame()  # the capacity fell
            worked = min(proven, held - 1)
            return self.fall_to(worked, effective, now, failed_at=worked + 1)
        self.lag.blame(min(ages), held, now)
        return None

    def _fail_try(self, level: int, effective: int, now: float) -> int:
        """Return to `level` after a try above it failed. A second failure there delays the next try."""
        was_known = self.failed_at is not None and self.failed_at <= level + 1
        if self.stride == 1 and was_known:  # else a successful climb has ended, or the capacity fell
            self.patience = min(self.patience * AFTER_FAILED_TRY, LONGEST_PATIENCE_SECONDS)
        return self.fall_to(level, effective, now, failed_at=level + 1)

    def on_release(self, now: float, *, was_full: bool) -> None:
        self.ended_when_full += was_full
        self.lag.on_release(now)

    # -- up ------------------------------------------------------------------------------------

    def climb(self, ceiling: int | None, now: float) -> int | None:
        """Raise the limit, because the tried level held. Returns the new limit; None means no reduction is left."""
        assert self.limit is not None
        if self.is_trying:
            self.stride *= 2
            self.worked_at = self.limit
        held = self.worked_at = self.worked_at or self.limit
        if self.failed_at is not None and held >= self.failed_at:
            self.failed_at = self.retry_at = None
            self.patience = SHORTEST_PATIENCE_SECONDS  # this provider changes
        self.step = 1
        self.success_since = False
        if self.failed_at == held + 1 and self.retry_at is not None and now < self.retry_at:
            self.stride, self.climb_at = 1, self.retry_at
            return self._hold(held)
        raised = self.next_level()
        if ceiling is not None and raised >= ceiling:
            self.limit = self.reduced_from = self.climb_at = None
            self.is_trying = False
            return None
        self.limit, self.is_trying, self.ended_when_full = raised, True, 0
        self.climb_at = now + HOLD_SECONDS
        return raised

    def next_level(self) -> int:
        """Return the level that is tried next: one slot above what held, then two, four ..., past no failed one."""
        held = self.worked_at or self.limit or 1
        raised = held + min(self.stride, max(1, held // 2))
        if self.failed_at is not None and held + 1 < self.failed_at <= raised:
            return self.failed_at - 1
        return held + 1 if self.failed_at == held + 1 else raised

    def next_try_at(self) -> float | None:
        """Return when the next level may be tried."""
        if self.failed_at == self.next_level() and self.retry_at is not None and self.climb_at is not None:
            return max(self.climb_at, self.retry_at)
        return self.climb_at

    def is_unproven(self, proven: int, cap: int) -> bool:
        """Return whether the tried level was not reached yet.

        Calls may be too short to be proven at once; then as many must have ended while the level was full.
        """
        return self.is_trying and max(proven, self.ended_when_full) < cap

    def is_too_early(self, live: int, now: float) -> bool:
        """Return whether more run than the limit allows. Their success proves nothing about the limit yet."""
        return self.limit is not None and live > self.limit and self.retry_at is not None and now < self.retry_at

    def postpone_climb(self, now: float) -> None:
        """Check again soon whether the tried level has been reached."""
        self.climb_at, self.success_since = now + HOLD_SECONDS, True

    def clear(self) -> None:
        """Forget the reduction, not the incident it came from."""
        self.limit = self.reduced_from = self.worked_at = self.failed_at = self.climb_at = None
        self.refused_level = self.refused_at = None
        self.patience, self.stride, self.step = SHORTEST_PATIENCE_SECONDS, 1, 1
        self.retry_at, self.is_trying, self.contradicts_reading = None, False, False
        self.lag.clear()

    def on_success(self, token: int | None) -> None:
        """Record a success. `token` is that of the slot that reported it, if any."""
        self.success_since = self.limit is not None
        if token is not None and token > self.incidents.last:
            self.lag.unblamed_seconds = None
            self.incidents.unanswered = None

    def shift(self, seconds: float) -> None:
        super().shift(seconds)
        self.lag.shift(seconds)
        self.incidents.shift(seconds)
        self.bursts.shift(seconds)
