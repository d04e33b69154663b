"""The usage gate: while somebody waits, the provider's own count decides who may enter.

Here: the last reading, the grants it cannot include yet, and when to poll again. One poll is out at a time; no
answer within the time-out, or one that makes no sense, means *unknown*.
"""

from bisect import insort
from typing import ClassVar

import msgspec

from paceline.core.gates.gate import Explanation
from paceline.core.values.fields import RelativeTimes

DEFAULT_LAG_SECONDS = 0.35
"""How far a provider's count lags before anything was learnt: about a request and its bookkeeping."""
FIRST_START_LAG_SECONDS = 2.0
"""How far it lags behind starts once one was refused that a reading had left room for: a count of that kind lags by
seconds. The next such refusal doubles it."""
LONGEST_LAG_SECONDS = 10.0
"""A difference that lasts longer is no lag: another program uses the account too."""
OTHERS_SECONDS = 60.0
"""How long the smallest difference between both counts stands for the use by others: longer than any lag, so that what
only lags is not taken for them, and short against their work."""


class UsagePoll(RelativeTimes):
    """The state of the polls of one scope.

    `count` is the last reading, None while unknown. `granted_at` is when the last slot was granted. `starting` are the
    starts without an answer yet, and when each was granted; `grants` are the times at which recent ones were answered.
    `free_at` is when released places may be free again for which no poll was made yet.
    `others` is how many places others use at most, and `fewest_others` the same since `others_since`.
    """

    relative_times: ClassVar[tuple[str, ...]] = (
        "read_at",
        "read_from",
        "asked_at",
        "next_ask_at",
        "granted_at",
        "last_release_at",
        "others_since",
    )

    interval: float
    timeout: float
    count: int | None = None
    read_at: float | None = None
    read_from: float | None = None
    asked_at: float | None = None
    next_ask_at: float | None = None
    granted_at: float | None = None
    grants: list[float] = msgspec.field(default_factory=list)
    starting: dict[str, float] = msgspec.field(default_factory=dict)
    free_at: list[float] = msgspec.field(default_factory=list)
    others: int = 0
    fewest_others: int = 0
    others_since: float = 0.0
    last_release_at: float | None = None
    learnt_lag: float | None = None
    start_lag: float = 0.0

    def wants_to_ask(self, now: float) -> bool:
        return self.asked_at is None and (self.next_ask_at is None or now >= self.next_ask_at)

    def on_asked(self, now: float) -> None:
        self.asked_at, self.next_ask_at = now, None
        self.free_at = [at for at in self.free_at if at > now]

    def on_answer(self, count: int | None, local: int, now: float) -> None:
        """Take over a reading, or None for unknown. `local` is how many slots are live here."""
        self._learn_lag(count, local, now)
        self.count, self.read_at = count, now
        self.read_from = now if self.asked_at is None else self.asked_at  # later grants may not be counted in it
        if count is not None:
            self._learn_others(max(0, count - local), now)
        self.asked_at = None
        self._ask_within(self.interval, now)

    def on_late_count(self, now: float) -> None:
        """Poll again soon: a place is free by our own count and that of others, but not by the reading."""
        if self.count is not None and self.asked_at is None:
            self._ask_within(DEFAULT_LAG_SECONDS, now)

    def _ask_within(self, seconds: float, now: float) -> None:
        self.next_ask_at = max(now, min([now + seconds, *self.free_at[:1]]))

    def expire_question(self, local: int, now: float) -> None:
        if self.asked_at is not None and now >= self.asked_at + self.timeout:
            self.on_answer(None, local, now)

    def on_release(self, free_at: float, now: float) -> None:
        """Poll when the place may be free. If a poll is already running, or comes before that, poll again after it."""
        self.last_release_at = now
        if self.asked_at is None or free_at > self.asked_at:
            insort(self.free_at, free_at)
        if self.asked_at is None and (self.next_ask_at is None or free_at < self.next_ask_at):
            self.next_ask_at = free_at

    def on_grant(self, ticket_id: str, now: float) -> None:
        oldest = now - LONGEST_LAG_SECONDS - self.interval
        self.grants = [at for at in self.grants if at > oldest]
        self.starting = {name: at for name, at in self.starting.items() if at > oldest}
        self.starting[ticket_id] = self.granted_at = now

    def on_accepted(self, ticket_id: str, now: float) -> None:
        """Count a start with every later reading, since the provider has answered it."""
        if self.starting.pop(ticket_id, None) is not None:
            self.grants.append(now)

    def on_ended(self, ticket_id: str, *, was_refused: bool) -> None:
        """Count a start that has ended with later readings. One that was refused is in none."""
        granted_at = self.starting.pop(ticket_id, None)
        if granted_at is not None and not was_refused:
            self.grants.append(granted_at)

    def room(self, cap: int, local: int, lag: float, now: float) -> int:
        """Return how many may enter by the last reading, while `local` slots are live here.

        None without a fresh reading or while a newer one is on its way, and one in each interval while the count is
        unknown. The provider must have room, and so must the limit for all of ours and others' together: a count that
        lags may lack ours.
        """
        if self.read_at is None or self.read_from is None or now - self.read_at >= self.interval:
            return 0
        if self.count is None:
            return 0 if self.granted_at is not None and now < self.granted_at + self.interval else 1
        if self.asked_at is not None:
            return 0
        uncounted = sum(at > self.read_from - DEFAULT_LAG_SECONDS for at in self.grants)
        uncounted += sum(at > self.read_from - lag for at in self.starting.values())
        return cap - max(self.count + uncounted, local + self.others)

    def explain(self, scope: str, cap: str, now: float) -> Explanation:
        """Explain why nobody enters by the last reading; `cap` is the limit in words."""
        count = "unknown" if self.count is None else str(self.count)
        retry_at = self.next_ask_at if self.next_ask_at is not None else now + self.interval
        return Explanation(f"the provider's own count for {scope} is {count} of {cap}; polling again", retry_at)

    def wakes(self) -> list[float | None]:
        """Return when a poll is due or times out, and when one more ticket may enter while the count is unknown."""
        due = self.next_ask_at if self.asked_at is None else self.asked_at + self.timeout
        if self.count is not None or self.granted_at is None:
            return [due]
        return [due, self.granted_at + self.interval]

    def shift(self, seconds: float) -> None:
        super().shift(seconds)
        self.grants = [at - seconds for at in self.grants]
        self.free_at = [at - seconds for at in self.free_at]
        self.starting = {name: at - seconds for name, at in self.starting.items()}

    def on_refused_start(self) -> None:
        """Learn from a refused start that the reading had left room for: the provider counts starts later."""
        if self.count is not None:
            self.start_lag = min(LONGEST_LAG_SECONDS, max(FIRST_START_LAG_SECONDS, self.start_lag * 2))

    def _learn_others(self, difference: int, now: float) -> None:
        """Learn how many places others use: the smallest difference to the provider's count in the last minute."""
        if now >= self.others_since + OTHERS_SECONDS:
            self.others, self.fewest_others, self.others_since = self.fewest_others, difference, now
        self.fewest_others = min(self.fewest_others, difference)
        self.others = min(self.others, self.fewest_others)

    def _learn_lag(self, count: int | None, local: int, now: float) -> None:
        """Learn how late releases are counted: the provider still counts more than are live here."""
        if count is None or self.last_release_at is None:
            return
        since_release = now - self.last_release_at
        if count > local and since_release <= LONGEST_LAG_SECONDS:
            self.learnt_lag = max(self.learnt_lag or 0.0, since_release)
        elif count <= local:
            self.last_release_at = None
