"""The usage gate: while somebody waits, the provider's own count decides who may enter.

Here: the last reading, the grants it cannot include yet, and when to poll again. One poll is out at a time; no
answer within the time-out, or one that makes no sense, means *unknown*.
"""

from typing import ClassVar

import msgspec

from paceline.core.gates.gate import Explanation
from paceline.core.values.relative_time import RelativeTimes

DEFAULT_LAG_SECONDS = 0.35
"""How far a provider's count lags before anything was learnt: about a request and its bookkeeping."""
LONGEST_LAG_SECONDS = 10.0
"""A difference that lasts longer is no lag: another program uses the account too."""


class UsagePoll(RelativeTimes):
    """The state of the polls of one scope.

    `count` is the last reading, None while unknown. `grants` are the times of recent grants.
    """

    relative_times: ClassVar[tuple[str, ...]] = ("read_at", "read_from", "asked_at", "next_ask_at", "last_release_at")

    interval: float
    timeout: float
    count: int | None = None
    read_at: float | None = None
    read_from: float | None = None
    asked_at: float | None = None
    ask_again: bool = False
    next_ask_at: float | None = None
    grants: list[float] = msgspec.field(default_factory=list)
    last_release_at: float | None = None
    learnt_lag: float | None = None
    start_lag: float = 0.0

    def wants_to_ask(self, now: float) -> bool:
        return self.asked_at is None and (self.next_ask_at is None or now >= self.next_ask_at)

    def on_asked(self, now: float) -> None:
        self.asked_at, self.next_ask_at, self.ask_again = now, None, False

    def on_answer(self, count: int | None, local: int, now: float) -> None:
        """Take over a reading, or None for unknown. `local` is how many slots are live here."""
        self._learn_lag(count, local, now)
        self.count, self.read_at = count, now
        self.read_from = now if self.asked_at is None else self.asked_at  # later grants may not be counted in it
        self._learn_start_lag(count, local, self.read_from)
        self.asked_at = None
        self.next_ask_at = now if self.ask_again else now + self.interval
        self.ask_again = False

    def expire_question(self, local: int, now: float) -> None:
        if self.asked_at is not None and now >= self.asked_at + self.timeout:
            self.on_answer(None, local, now)

    def on_release(self, now: float) -> None:
        """Poll now, because room may have become free. If a poll is already running, poll again after it."""
        self.last_release_at = now
        if self.asked_at is None:
            self.next_ask_at = now
        elif now > self.asked_at:
            self.ask_again = True

    def on_grant(self, now: float) -> None:
        oldest = now - LONGEST_LAG_SECONDS - self.interval
        self.grants = [at for at in self.grants if at > oldest]
        self.grants.append(now)

    def room(self, cap: int, lag: float, now: float) -> int:
        """Return how many may enter by the last reading.

        None without a fresh reading, and one in each interval while the count is unknown.
        """
        if self.read_at is None or self.read_from is None or now - self.read_at >= self.interval:
            return 0
        if self.count is None:
            return 0 if any(now < at + self.interval for at in self.grants) else 1
        unconfirmed = sum(at > self.read_from - lag for at in self.grants)
        return cap - self.count - unconfirmed

    def explain(self, scope: str, cap: str, now: float) -> Explanation:
        """Explain why nobody enters by the last reading; `cap` is the limit in words."""
        count = "unknown" if self.count is None else str(self.count)
        retry_at = self.next_ask_at if self.next_ask_at is not None else now + self.interval
        return Explanation(f"the provider's own count for {scope} is {count} of {cap}; polling again", retry_at)

    def wakes(self) -> list[float | None]:
        """Return when a poll is due or times out, and when one more ticket may enter while the count is unknown."""
        due = self.next_ask_at if self.asked_at is None else self.asked_at + self.timeout
        return [due] if self.count is not None or not self.grants else [due, self.grants[-1] + self.interval]

    def shift(self, seconds: float) -> None:
        super().shift(seconds)
        self.grants = [at - seconds for at in self.grants]

    def on_refused_start(self) -> None:
        """Learn from a refused start that the reading had left room for: the provider counts starts later."""
        if self.count is not None:
            self.start_lag = min(LONGEST_LAG_SECONDS, max(DEFAULT_LAG_SECONDS, self.start_lag) * 2)

    def _learn_start_lag(self, count: int | None, local: int, read_from: float) -> None:
        """Learn how late starts are counted: a provider that counts fewer than are live here lacks the latest."""
        missing = 0 if count is None else local - count
        if 0 < missing <= len(self.grants):
            age = read_from - self.grants[-missing]
            if self.start_lag < age <= LONGEST_LAG_SECONDS:
                self.start_lag = age

    def _learn_lag(self, count: int | None, local: int, now: float) -> None:
        """Learn how late releases are counted: the provider still counts more than are live here."""
        if count is None or self.last_release_at is None:
            return
        since_release = now - self.last_release_at
        if count > local and since_release <= LONGEST_LAG_SECONDS:
            self.learnt_lag = max(self.learnt_lag or 0.0, since_release)
        elif count <= local:
            self.last_release_at = None
