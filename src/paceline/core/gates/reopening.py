"""When a closed window reopens, as a belief with several hypotheses, and who looks when.

The hypotheses are each reset that was stated since the closing, a little later than one of them, and no stated time
at all. A reset that moves is doubted while nothing of ours can have spent the new period: both times are probed.
A moment after a reset the canary goes, and then a wave: the n-th follower about a second / n after the one before.

Here: times and counts. Never here: what is used (`window_usage.py`), and who may go (`quota_window.py`).
"""

import math
import zlib

import msgspec

WAVE_STARTS = 50
"""So many starts belong to a wave. The gaps after them, below 20 ms, would make no difference."""

AFTER_RESET_SECONDS = (1.0, 3.0)
"""How long after a believed reset the canary goes. Resets are stated in whole seconds: one in that very second is
refused, and the refusal costs more than these seconds."""


def first_look(resets_at: float) -> float:
    """Return when the canary of a window goes that is believed to reset then. It follows from the reset alone."""
    least, most = AFTER_RESET_SECONDS
    return resets_at + least + (most - least) * jitter(f"{resets_at!r}", "reset")


def gap_after(started: int, ticket_id: str, window: str) -> float:
    """Return the gap after the n-th start: a second / n, varied by up to a half."""
    return (0.5 + jitter(ticket_id, window)) / started


def jitter(ticket_id: str, window: str) -> float:
    """Return a number from 0 to 1 that follows from the names, so that the core needs no randomness."""
    return zlib.crc32(f"{ticket_id}|{window}".encode()) / 0xFFFFFFFF


UNKNOWN_LOOK_SECONDS = (300.0, 900.0, 1800.0, 3600.0)
"""Waits between looks where no reset is known, or an implausible one: soon at first, then hourly, because each look
costs a refusal."""
EARLY_LOOK_SECONDS = 2700.0
"""The first look before a believed reset: text states wrong ones often enough. Each wait doubles."""
READ_LOOK_SECONDS = 7200.0
"""The first look where readings of the window came with the reset: those are seldom wrong."""
LONGEST_LOOK_SECONDS = 6 * 3600.0
"""The longest time without a look: providers sometimes reopen long windows days early, and a look costs little."""
CONTRADICTED_LOOK_SECONDS = 90.0
"""The wait where the closing contradicts what was just reported: a wrong closing costs minutes, a look one start."""
LATE_LOOK_SECONDS = (5.0, 15.0, 60.0, 120.0, 300.0, 600.0, 900.0, 900.0, 900.0, 1800.0, 3600.0)
"""Waits between looks after a reset that has passed. The first two are for one that is stated again: most are stated in
whole seconds or minutes. Then an hour of looks: providers are late by minutes, and a look costs one request, while a
quarter of an hour of a fleet is worth hundreds. Few resets are wrong by more than an hour."""
DOUBTED_LOOKS = 7
"""After so many looks, in an hour, a later reset that is stated instead of the missed one is believed."""
SURPRISE_SPAN_SECONDS, SURPRISE_LOOK_SECONDS = 3600.0, 900.0
"""How long before a stated reset, and how often, looks go where the last reset of this window was wrong: few are early
by more than an hour."""
LONG_PAST_SECONDS = 1800.0
"""A reset that lies so far in the past when it is stated is treated as unknown."""
RESET_WOBBLE_SECONDS = 300.0
"""Resets that are stated in seconds from now differ a little from one statement to the next."""
MOST_STATED = 4
"""Stated resets that are remembered: announced, moved, moved back, and one by another source."""
MOST_BROKEN = 3
"""Resets that may pass without effect. Those that are stated after that no longer bring a look forward: they slide."""
UNTRUSTED_CONFIDENCE = 0.2
"""The most that an implausible reset is trusted, whatever its source claims."""
LONGEST_LENGTH_SECONDS = 32 * 86400.0
"""The longest period of a window with an unknown name: a month, and a day for time zones."""
LENGTH_SLACK = 1.1
"""A reset may lie a tenth beyond the length of its window: some providers round up."""


def plausible_confidence(resets_at: float | None, confidence: float, length: float | None, now: float) -> float:
    """Return how far to trust a stated reset: little if it is past, or far beyond the length of its window."""
    if resets_at is None:
        return 0.0
    if resets_at <= now or resets_at > now + (length or LONGEST_LENGTH_SECONDS) * LENGTH_SLACK:
        return min(confidence, UNTRUSTED_CONFIDENCE)
    return confidence


class Reopening(msgspec.Struct):
    """The belief about one closing. All times are points on the calendar, so a clock that is set leaves them alone.

    `stated` are the resets stated since the closing that are still ahead: `first_look` says when one counts as passed.
    `missed_at` is the last reset that passed without effect, and `broken` how many did. `looks` counts the canaries
    that were refused since then.
    """

    stated: tuple[float, ...] = ()
    missed_at: float | None = None
    broken: int = 0
    looks: int = 0
    moved_to: float | None = None
    """The reset that was stated instead of the missed one, although nothing of ours can have spent a new period."""
    surprises: int = 0
    """1 if the last reopening was before its stated reset, or at a time far from it."""

    def late(self, began_at: float) -> "Reopening":
        """Return the belief after the closing of a period that began just now, and that nobody can have spent.

        The looks before the success count: the next wait is longer.
        """
        return Reopening(missed_at=began_at, broken=1, looks=self.looks, surprises=self.surprises)

    def after_success(self, believed: float | None, is_trusted: bool, now: float) -> "Reopening":
        """Return the belief with which the window reopens. A stated reset that is still ahead may be true after all."""
        if self.missed_at is not None:
            return Reopening(looks=self.looks, surprises=self.surprises)
        surprises = self.surprises
        if believed is not None:
            surprises = int(not is_trusted or believed > now + RESET_WOBBLE_SECONDS)
        return Reopening(stated=self.stated, looks=self.looks, surprises=surprises)

    def closed_again(self) -> "Reopening":
        """Return the belief at the beginning of an ordinary closing."""
        return Reopening(surprises=self.surprises)

    def states(self, resets_at: float | None) -> bool:
        """Return whether the reset is a hypothesis already."""
        return resets_at is not None and any(abs(at - resets_at) <= RESET_WOBBLE_SECONDS for at in self.stated)

    def on_stated(self, resets_at: float | None, now: float) -> None:
        """Add a stated reset to the hypotheses. It replaces an earlier statement of about the same time."""
        if resets_at is None or resets_at < now - LONG_PAST_SECONDS:
            return
        if first_look(resets_at) <= now:
            self._miss(resets_at)
            return
        others = tuple(at for at in self.stated if abs(at - resets_at) > RESET_WOBBLE_SECONDS)
        self.stated = (*others, resets_at)[-MOST_STATED:]
        if self.missed_at is not None:
            self.moved_to = resets_at

    def on_refused(self, expected: float | None, now: float) -> None:
        """Count a refused look. `expected` is what was believed first: the reset, or else the end of the period."""
        passed = [at for at in self.stated if first_look(at) <= now]
        if self.missed_at is None and expected is not None and first_look(expected) <= now:
            passed.append(expected)
        self.stated = tuple(at for at in self.stated if first_look(at) > now)
        if self.missed_at is not None:
            self.looks += 1
        if passed:
            self._miss(max(passed))

    def _miss(self, reset: float) -> None:
        """Probe again at short intervals after a reset that passed without effect, unless that happened too often."""
        if self.missed_at is None or reset > self.missed_at:
            self.missed_at, self.moved_to = reset, None
            self.broken += 1
            self.looks = 1 if self.broken <= MOST_BROKEN else max(1, self.looks)

    @property
    def is_in_doubt(self) -> bool:
        """Whether a late reopening is still likelier than the reset that is stated now."""
        return self.moved_to is not None and self.looks <= DOUBTED_LOOKS

    def next_look(
        self, tried: int, end_of_period: float | None, now: float, *, is_plausible: bool = True, is_read: bool = False
    ) -> float:
        """Return when to probe: just after each stated reset, earlier, and after growing waits once one had no effect.

        `tried` canaries were refused. `is_plausible` is whether the stated reset is believed, `is_read` whether it came
        with readings.
        """
        ahead = self.next_stated(now)
        if self.missed_at is not None:
            waits = LATE_LOOK_SECONDS if self.moved_to is None else LATE_LOOK_SECONDS[2:]
            look_at = now + _nth(waits, max(self.looks, 1) - 1)
            look_at = look_at if self.broken > MOST_BROKEN else min(look_at, ahead)
        elif ahead == math.inf or not is_plausible:
            look_at = min(ahead, now + _nth(UNKNOWN_LOOK_SECONDS, tried))
        else:
            early = (READ_LOOK_SECONDS if is_read else EARLY_LOOK_SECONDS) * 2.0 ** min(tried, 3)
            look_at = min(ahead, now + min(early, LONGEST_LOOK_SECONDS))
            if self.surprises:
                look_at = min(look_at, max(ahead - SURPRISE_SPAN_SECONDS, now + SURPRISE_LOOK_SECONDS))
        if end_of_period is None or end_of_period <= now + AFTER_RESET_SECONDS[1]:
            return look_at  # the look of these seconds was one at its end
        return min(look_at, max(first_look(end_of_period), now + UNKNOWN_LOOK_SECONDS[0]))

    def next_stated(self, now: float) -> float:
        """Return when the canary of the next stated reset goes; infinity where none is ahead."""
        return min((look for look in map(first_look, self.stated) if look > now), default=math.inf)

    def describe(self, now: float) -> str | None:
        """Return why the reset is in doubt, in words; None while it is not."""
        if self.missed_at is None:
            return None
        looks = "one look" if self.looks == 1 else f"{self.looks} looks"
        late = f"was to reopen {_span(now - self.missed_at)} ago and has refused {looks} since"
        if self.moved_to is None:
            return late
        return f"{late}; it now states a reset in {_span(self.moved_to - now)}, although nothing was used in between"


def _nth(waits: tuple[float, ...], number: int) -> float:
    return waits[min(number, len(waits) - 1)]


def _span(seconds: float) -> str:
    """Return a length of time in the unit in which people say it."""
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length or (unit == "min" and seconds >= length):
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
