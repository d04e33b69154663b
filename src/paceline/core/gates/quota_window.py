"""One quota window as a belief: when it reopens, how it is probed, and how much of it is used.

A closed window lets nobody in until `probe_at`, then one canary. Its success reopens the window in a wave.
Here: numbers and names. Never here: the scope of the window, and who waits there (`quota_gate.py`).
"""

from typing import ClassVar, Literal

import msgspec

from paceline.core.gates.reopening_wave import LULL_SECONDS, gap_after, is_wave_over
from paceline.core.gates.window_budget import UsagePlan
from paceline.core.gates.window_usage import Period
from paceline.core.state.usage_meter import Use
from paceline.core.values.relative_time import RelativeTimes
from paceline.core.values.tickets import Ticket

UNKNOWN_RESET_SECONDS = (300.0, 900.0, 1800.0, 3600.0)
"""Waits between probes where no reset is known: soon at first, then hourly, because each probe costs a refusal."""
EARLY_PROBE_SECONDS = 2700.0
"""The first probe before a believed reset: text that states one is wrong often enough, and 45 min cost few probes."""
READ_PROBE_SECONDS = 7200.0
"""The same where readings of the window came with the reset: those are seldom wrong."""
CONTRADICTED_PROBE_SECONDS = 90.0
"""The same where the closing contradicts what was just reported: minutes are lost where it is wrong, a start else."""
CONTRADICTED_CONFIDENCE = 0.5
"""How far such a closing is trusted: as likely right as wrong."""
DOUBTFUL_PROBE_SECONDS = 300.0
"""The same where the reset is implausible: it is probed as if it were unknown."""
LATE_PROBE_SECONDS = (5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0)
"""Waits between probes after a reset that has passed: most are stated in whole seconds or minutes, few are off by
an hour."""
LONG_PAST_SECONDS = 1800.0
"""A reset that lies so far in the past when it is stated is treated as unknown."""
TRUSTED_CONFIDENCE = 0.5
"""From here on a belief is more likely right than wrong, and is planned with."""
UNTRUSTED_CONFIDENCE = 0.2
"""The most that an implausible reset is trusted, whatever its source claims."""
LONGEST_LENGTH_SECONDS = 32 * 86400.0
"""The longest period of a window with an unknown name: a month, and a day for time zones."""
LENGTH_SLACK = 1.1
"""A reset may lie a tenth beyond the length of its window: some providers round up."""
MOST_DOUBLINGS = 12
"""Where the doubling of early probes stops: 4096 times 45 min is beyond any window."""
CANARY_SECONDS = 900.0
"""A canary without an answer for this long is joined by another: its turn may be long, or it may hang."""
STRUCTURED_SOURCES = ("field", "header")
LENGTH_SECONDS = {"5h": 5 * 3600.0, "daily": 86400.0, "weekly": 7 * 86400.0, "monthly": 31 * 86400.0}
"""Lengths of periods by the names of windows, as providers define them."""

RESET_WOBBLE_SECONDS = 300.0
"""Resets that are stated in seconds from now differ a little from one reading to the next."""
FRESH_DROP_RATIO = 0.05
"""A reading that is lower by more than this belongs to a new period: within one, use only grows."""
NEW_COST_SHARE = 0.2
"""Weight of the latest reading in the cost of a start: five readings smooth out single large runs."""

ESTIMATED_PLAN = 0.9
"""Where the use is estimated, the plan ends this far into the period.

What is left after that is still used, and a window that holds more than was estimated shows it.
"""

WindowState = Literal["open", "closed", "probing", "wave"]


class Window(RelativeTimes):
    """One quota period of a scope. `probe_at` is when the next canary may go."""

    relative_times: ClassVar[tuple[str, ...]] = ("seen_at", "probed_since", "wave_next_at", "reported_at")

    name: str
    state: WindowState = "open"
    resets_at: float | None = None
    source: str | None = None
    confidence: float = 1.0
    seen_at: float | None = None
    probe_at: float | None = None
    refusals: int = 0
    late_refusals: int = 0
    """Refusals since the believed reset has passed."""
    canary: str | None = None
    probed_since: float | None = None
    wave_started: int = 0
    wave_next_at: float = 0.0
    used_ratio: float | None = None
    plan_from: tuple[float, float] | None = None
    starts_at_reading: int = 0
    """The scope's starts at the last reading, less the runs that have since entered without a place."""
    cost_ratio: float = 0.0
    is_read: bool = False
    """Whether the provider has reported the use of this period."""
    is_contradicted: bool = False
    """Whether the closing contradicts what was reported just before."""
    reported_at: float = 0.0
    period: Period = msgspec.field(default_factory=Period)

    def close(
        self, resets_at: float | None, source: str | None, confidence: float, now: float, *, in_doubt: bool = False
    ) -> None:
        """Close the window after a refusal. Many sessions that meet the same closing are one refusal.

        In doubt a canary looks again soon, and it is no refusal yet.
        """
        if self.state in ("open", "wave") or self.is_contradicted:
            self.refusals = self.late_refusals = 0
        is_first = self.state != "closed" or self.is_contradicted
        self.is_contradicted = in_doubt
        if is_first and not in_doubt:
            self.refusals += 1
            self.late_refusals += self.resets_at is not None and self.resets_at <= now
        self.state, self.canary, self.probed_since = "closed", None, None
        self.believe(resets_at, source, confidence, now)

    def believe(self, resets_at: float | None, source: str | None, confidence: float, now: float) -> None:
        """Take over news of the reset. Structured evidence outranks parsed text about the same window."""
        if not self._outranks(source, now):
            if resets_at is not None and resets_at > now:
                self.late_refusals = 0
            self.resets_at, self.source, self.seen_at = resets_at, source, now
            self.confidence = self._plausible(resets_at, confidence, now)
        if self.state == "closed":
            self.probe_at = self._next_probe(now)

    def _outranks(self, source: str | None, now: float) -> bool:
        """Return whether the present belief is better than news from `source`."""
        still_ahead = self.resets_at is not None and self.resets_at > now and self.confidence >= TRUSTED_CONFIDENCE
        return still_ahead and self.source in STRUCTURED_SOURCES and source not in STRUCTURED_SOURCES

    def _plausible(self, resets_at: float | None, confidence: float, now: float) -> float:
        """Return how far to trust a reset: an implausible one is kept as it is, with little trust."""
        if resets_at is None:
            return 0.0
        longest = LENGTH_SECONDS.get(self.name, LONGEST_LENGTH_SECONDS)
        if resets_at <= now or resets_at > now + longest * LENGTH_SLACK:
            return min(confidence, UNTRUSTED_CONFIDENCE)
        return confidence

    def _next_probe(self, now: float) -> float:
        """Return when to probe next: at the believed reset, or earlier, because beliefs are often wrong."""
        if self.is_contradicted:
            return now + CONTRADICTED_PROBE_SECONDS
        tried = self.refusals - 1
        if self.resets_at is None or self.resets_at < now - LONG_PAST_SECONDS:
            return self._or_end_of_period(now, now + UNKNOWN_RESET_SECONDS[min(tried, len(UNKNOWN_RESET_SECONDS) - 1)])
        if self.resets_at <= now:
            return now + LATE_PROBE_SECONDS[min(max(0, self.late_refusals - 1), len(LATE_PROBE_SECONDS) - 1)]
        probe_at = min(self.resets_at, now + self._early_probe_seconds * float(2 ** min(tried, MOST_DOUBLINGS)))
        return probe_at if self.confidence >= TRUSTED_CONFIDENCE else self._or_end_of_period(now, probe_at)

    def _or_end_of_period(self, now: float, probe_at: float) -> float:
        """Return the probe time, but no later than the end of the period as counted from its opening."""
        opened_at, length = self.period.opened_at, self.length
        if opened_at is None or length is None or opened_at + length <= now:
            return probe_at
        return min(probe_at, max(opened_at + length, now + DOUBTFUL_PROBE_SECONDS))

    @property
    def _early_probe_seconds(self) -> float:
        """How long to trust the believed reset before the first probe."""
        if self.confidence < TRUSTED_CONFIDENCE:
            return DOUBTFUL_PROBE_SECONDS
        return EARLY_PROBE_SECONDS if self.used_ratio is None else READ_PROBE_SECONDS

    def blocks(self, ticket: Ticket, now: float) -> bool:
        """Return whether the ticket must wait. A canary session's own runs may pass: they are the probe."""
        if self.state == "open":
            return False
        if self.state == "probing" and ticket.parent is not None and ticket.parent == self.canary:
            return False
        opens_at = self.opens_at
        return opens_at is not None and now < opens_at

    @property
    def opens_at(self) -> float | None:
        """When the next ticket may pass by time alone."""
        if self.state in ("closed", "probing"):
            return self.probe_at
        return self.wave_next_at if self.state == "wave" else None

    def is_probed_by(self, ticket: Ticket, granted_at: float) -> bool:
        """Return whether the ticket is the canary, a run of it, or an earlier canary that took its time."""
        is_canary = self.canary is not None and self.canary in (ticket.id, ticket.parent)
        return is_canary or (self.probed_since is not None and granted_at >= self.probed_since)

    def on_grant(self, ticket_id: str, now: float, *, takes_place: bool) -> bool:
        """Count a ticket that has passed. Returns True if it went as the canary."""
        self.starts_at_reading -= not takes_place
        if self.state == "closed" or (self.state == "probing" and self.probe_at is not None and now >= self.probe_at):
            self.state, self.canary, self.probe_at = "probing", ticket_id, now + CANARY_SECONDS
            self.probed_since = now if self.probed_since is None else self.probed_since
            return True
        if self.state == "wave":
            self.wave_started += 1
            was_awaited = now < self.wave_next_at + LULL_SECONDS
            self.wave_next_at = now + gap_after(self.wave_started, ticket_id, self.name)
            if is_wave_over(self.wave_started) or not was_awaited:
                self.state = "open"
        return False

    def on_canary_accepted(self, now: float) -> None:
        """Reopen in a wave: the provider has accepted the canary."""
        self.state, self.canary, self.is_contradicted = "wave", None, False
        self.resets_at = self.probe_at = self.probed_since = None
        self.refusals = 0
        self.wave_started, self.wave_next_at = 0, now

    def on_canary_lost(self, now: float) -> None:
        """Close again, and allow another canary at once: this one ended without an answer."""
        self.state, self.canary, self.probe_at = "closed", None, now

    def on_reading(self, used_ratio: float, resets_at: float | None, starts: int, now: float) -> None:
        """Take over how much is used. A reading never opens a closed window: a refusal outranks it.

        `starts` are those of the scope so far.
        """
        fresh_period = (
            self.used_ratio is None or used_ratio < self.used_ratio - FRESH_DROP_RATIO or not self._is_reset(resets_at)
        )
        started = starts - self.starts_at_reading
        if self.used_ratio is not None and started and used_ratio > self.used_ratio:
            cost = (used_ratio - self.used_ratio) / started
            self.cost_ratio = (
                cost if self.cost_ratio == 0 else (1 - NEW_COST_SHARE) * self.cost_ratio + NEW_COST_SHARE * cost
            )
        if fresh_period or self.plan_from is None:
            self.plan_from = (now, used_ratio)
        self.used_ratio, self.starts_at_reading, self.is_read = used_ratio, starts, True
        if self.state in ("open", "wave") and resets_at is not None:
            self.resets_at, self.source, self.seen_at = resets_at, "header", now

    def shift(self, seconds: float) -> None:
        """Shift with the clock. A reset is a point on the calendar and stays; a probe before it is a wait from now."""
        super().shift(seconds)
        if self.probe_at is not None and self.probe_at != self.resets_at:
            self.probe_at -= seconds
        if self.plan_from is not None:
            self.plan_from = (self.plan_from[0] - seconds, self.plan_from[1])
        self.period.shift(seconds)

    def _is_reset(self, resets_at: float | None) -> bool:
        """Return whether this is the reset that is already believed, or no reset at all."""
        if resets_at is None or self.resets_at is None:
            return resets_at is None
        return abs(resets_at - self.resets_at) <= RESET_WOBBLE_SECONDS

    # -- how much is used --------------------------------------------------------------------

    def on_spent(self, use: Use, resets_at: float | None, confidence: float, now: float) -> None:
        """Learn the size of the window from a refusal, before it closes the window: the use since its opening."""
        if self.state in ("open", "wave"):
            is_trusted = self._plausible(resets_at, confidence, now) >= TRUSTED_CONFIDENCE
            self.period.on_closed(use, resets_at if is_trusted else None, LENGTH_SECONDS.get(self.name), now)

    def begin_period(self, use: Use, now: float) -> None:
        """Begin a period. Readings of the period before do not count any more."""
        self.period.begin(use, now)
        self.is_read = False

    def is_period_over(self, now: float) -> bool:
        """Return whether the period has ended without a closing."""
        resets_at = self.expected_reset
        return self.state == "open" and resets_at is not None and now >= resets_at

    @property
    def expected_reset(self) -> float | None:
        """When this period ends: as the provider stated it, else one length after the opening."""
        opened_at = self.period.opened_at
        if self.resets_at is not None and (opened_at is None or self.resets_at > opened_at):
            return self.resets_at
        is_known = self.length is not None and opened_at is not None and self.period.is_seen
        return (opened_at or 0.0) + (self.length or 0.0) if is_known else None

    @property
    def length(self) -> float | None:
        """How long a period is: by the window's name, else as seen before."""
        return LENGTH_SECONDS.get(self.name) or self.period.learnt_length

    def plan(self, use: Use, live: int, now: float) -> UsagePlan | None:
        """Return how much is used by now, from a reading or else an estimate; None where nothing is known.

        A live slot counts from its start with what a slot uses on average.
        """
        resets_at = self.expected_reset
        if resets_at is None or self._plausible(resets_at, 1.0, now) < TRUSTED_CONFIDENCE:
            return None
        underway = self.period.share_of_starts(live, now)
        if self.is_read and self.used_ratio is not None and self.plan_from is not None:
            unread = max((use.starts - self.starts_at_reading) * self.cost_ratio, underway)
            return UsagePlan(self.used_ratio + unread, self.plan_from, resets_at, resets_at)
        used, opened_at = self.period.share_used(use, now), self.period.opened_at
        if used is None or opened_at is None or not self.period.is_seen:
            return None
        ends_at = opened_at + ESTIMATED_PLAN * (resets_at - opened_at)
        return UsagePlan(used + underway, (opened_at, 0.0), ends_at, resets_at, is_estimate=True)
