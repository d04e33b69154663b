"""When a closed window reopens, as a belief with several hypotheses, and who looks when.

The hypotheses are each reset that was stated since the closing, a little later than one of them, and no stated time
at all. A reset that moves is doubted while nothing of ours can have spent the new period: both times are probed.
A moment after a reset the canary goes, and then a wave: the n-th follower about a second / n after the one before.

Here: times and counts. Never here: what is used (`window_usage.py`), and who may go (`quota_window.py`).
"""

import zlib

import msgspec

WAVE_SECONDS = 1.0
"""The first gap of a wave: time enough for a refusal to stop it."""
WAVE_OVER_SECONDS = 0.02
"""A gap below this makes no difference: after 50 starts the wave is over."""
WAVE_LULL_SECONDS = 60.0
"""If no waiter took its turn for this long, no crowd is left to hold back."""

AFTER_RESET_SECONDS = (1.0, 3.0)
"""How long after a believed reset the canary goes. Resets are stated in whole seconds: one in that very second is
refused, and the refusal costs more than these seconds."""


def first_look(resets_at: float) -> float:
    """Return when the canary of a window goes that is believed to reset then. It follows from the reset alone."""
    least, most = AFTER_RESET_SECONDS
    return resets_at + least + (most - least) * jitter(f"{resets_at!r}", "reset")


def gap_after(started: int, ticket_id: str, window: str) -> float:
    """Return the gap after the n-th start, varied by up to a half."""
    return WAVE_SECONDS / started * (0.5 + jitter(ticket_id, window))


def is_wave_over(started: int) -> bool:
    """Return whether so many have started that the next gap makes no difference."""
    return WAVE_SECONDS / started < WAVE_OVER_SECONDS


def jitter(ticket_id: str, window: str) -> float:
    """Return a number from 0 to 1 that follows from the names, so that the core needs no randomness."""
    return zlib.crc32(f"{ticket_id}|{window}".encode()) / 0xFFFFFFFF


UNKNOWN_RESET_SECONDS = (300.0, 900.0, 1800.0, 3600.0)
"""Waits between looks where no reset is known: soon at first, then hourly, because each look costs a refusal."""
EARLY_PROBE_SECONDS = 2700.0
"""The first look before a believed reset: text that states one is wrong often enough, and 45 min cost few looks."""
READ_PROBE_SECONDS = 7200.0
"""The first probe where readings of the window came with the reset: those are seldom wrong."""
CONTRADICTED_PROBE_SECONDS = 90.0
"""The first probe where the closing contradicts what was just reported.

A wrong closing costs minutes, a needless probe costs one start.
"""
DOUBTFUL_PROBE_SECONDS = UNKNOWN_RESET_SECONDS[0]
"""The first probe where the reset is implausible: it is probed as if it were unknown."""
MOMENT_SECONDS = (5.0, 15.0)
"""The first looks after a reset that has passed and is stated again: most are stated in whole seconds or minutes."""
LOOK_SECONDS = (60.0, 120.0, 300.0, 600.0, 900.0, 900.0, 900.0)
"""Waits between looks after a reset that has passed: an hour in all. Providers are late by minutes, and a look costs
one request, while a quarter of an hour of a fleet is worth hundreds."""
LATER_LOOK_SECONDS = (1800.0, 3600.0)
"""Waits between probes after that first hour: few resets are wrong by more than an hour."""
MOVED_LOOK_SECONDS = (7200.0, 14400.0)
"""Waits between probes after those, where a later reset is stated: it is now likelier than an earlier one."""
SURPRISE_SPAN_SECONDS = 3600.0
"""How long before a stated reset is probed where resets of this window were wrong before: few are early by more."""
SURPRISE_LOOK_SECONDS = LOOK_SECONDS[-1]
"""Waits between these looks, as after a reset that has passed."""
MOST_SURPRISES = 3
"""Where their count stops: after as many resets on time they are believed again."""
LONG_PAST_SECONDS = 1800.0
"""A reset that lies so far in the past when it is stated is treated as unknown."""
MOST_DOUBLINGS = 12
"""Where the doubling of early looks stops: 4096 times 45 min is beyond any window."""
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
LONGEST_LOOK_SECONDS = 6 * 3600.0
"""The longest time without a look: providers sometimes reopen long windows days early, and a look costs little."""


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
    """Reopenings before a stated reset, or at a time far from it, less those on time."""

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
            is_surprise = not is_trusted or believed > now + RESET_WOBBLE_SECONDS
            surprises = min(surprises + 1, MOST_SURPRISES) if is_surprise else max(0, surprises - 1)
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
        return self.moved_to is not None and self.looks <= len(LOOK_SECONDS)

    def next_look(self, tried: int, early_seconds: float, end_of_period: float | None, now: float) -> float:
        """Return when to probe: just after each stated reset, earlier, and after growing waits once one had no effect.

        `tried` canaries were refused. The first look comes after `early_seconds` at the latest.
        """
        ahead = min((look for look in map(first_look, self.stated) if look > now), default=None)
        if self.missed_at is not None:
            look_at = self._look_after_miss(ahead, now)
        elif ahead is None:
            look_at = now + UNKNOWN_RESET_SECONDS[min(tried, len(UNKNOWN_RESET_SECONDS) - 1)]
        else:
            early = min(
                early_seconds * float(2 ** min(tried, MOST_DOUBLINGS)), max(early_seconds, LONGEST_LOOK_SECONDS)
            )
            look_at = min(ahead, now + early)
            if self.surprises:
                look_at = min(look_at, max(ahead - SURPRISE_SPAN_SECONDS, now + SURPRISE_LOOK_SECONDS))
        if end_of_period is None or end_of_period <= now + AFTER_RESET_SECONDS[1]:
            return look_at  # the look of these seconds was one at its end
        return min(look_at, max(first_look(end_of_period), now + DOUBTFUL_PROBE_SECONDS))

    def _look_after_miss(self, ahead: float | None, now: float) -> float:
        waits: tuple[float, ...]
        if self.moved_to is None:
            waits = MOMENT_SECONDS + LOOK_SECONDS + LATER_LOOK_SECONDS
        elif self.moved_to - now <= LATER_LOOK_SECONDS[-1]:  # a reset that is always near says nothing
            waits = LOOK_SECONDS + LATER_LOOK_SECONDS
        else:
            waits = LOOK_SECONDS + LATER_LOOK_SECONDS + MOVED_LOOK_SECONDS
        look_at = now + waits[min(max(self.looks, 1), len(waits)) - 1]
        return look_at if ahead is None or self.broken > MOST_BROKEN else min(look_at, ahead)

    def describe(self, now: float) -> str | None:
        """Return why the reset is in doubt, in words; None while it is not."""
        if self.missed_at is None:
            return None
        looks = "one look" if self.looks == 1 else f"{self.looks} looks"
        late = f"was to reopen {_span(now - self.missed_at)} ago and has refused {looks} since"
        if self.moved_to is None:
            return late
        return f"{late}; it now states a reset in {_span(self.moved_to - now)}, although nothing was used in between"


def _span(seconds: float) -> str:
    """Return a length of time in the unit in which people say it."""
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length or (unit == "min" and seconds >= length):
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
