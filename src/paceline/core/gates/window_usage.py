"""What the slots of a scope use, and what a quota window holds by that measure: for providers that tell nothing.

A period that was seen from its opening to its closing has shown what the window holds. Numbers only. Whatever a
provider tells of a window outranks all of it: see `windows.py`.
"""

from typing import ClassVar

import msgspec

from paceline.core.state.usage_meter import Use
from paceline.core.values.relative_time import RelativeTimes

KEPT_SPENT = 3
"""The middle one of them counts: one odd period, shared with a person at work, does not rule."""
DAY_SECONDS = 86400.0
FORGET_PERIODS = 4
FORGET_SECONDS = 28 * DAY_SECONDS
"""A guess that is too small would keep itself alive, for nothing closes any more. So it is learnt anew: after so many
periods, and once two of those that were spent agree, after so many seconds."""
AGREE_WITHIN = 0.8
WHOLE_WITHIN = 0.1
"""A reset that is told this close to a window's length after its opening was seen from the beginning."""


class Spent(msgspec.Struct, frozen=True):
    """A period that was used up, or more than any before it: what it held, and how long it was, if that is known."""

    at: float
    use: Use
    length: float | None = None


class Period(RelativeTimes):
    """From a window's opening on, and the last ones that were spent. `is_seen` from an opening to the next closing."""

    relative_times: ClassVar[tuple[str, ...]] = ("opened_at",)

    opened_at: float | None = None
    at_opening: Use = Use()
    is_seen: bool = False
    spent: tuple[Spent, ...] = ()

    def begin(self, use: Use, now: float) -> None:
        """The window has opened. One that went by without a closing holds what was used in it, at least."""
        size, used = self.size(now), use.since(self.at_opening)
        if self.is_seen and size is not None and used.share_of(size) > 1.0:
            self._learn(Spent(now, used))
        self.opened_at, self.at_opening, self.is_seen = now, use, True

    def on_closed(self, use: Use, resets_at: float | None, usual_length: float | None, now: float) -> None:
        """The window is spent; only a period that was seen from its beginning teaches what it holds."""
        used = use.since(self.at_opening)
        length = None if resets_at is None or self.opened_at is None else resets_at - self.opened_at
        is_whole = self.is_seen
        if length is not None and usual_length is not None:
            is_whole = abs(length - usual_length) <= WHOLE_WITHIN * usual_length
        if is_whole and used.seconds > 0:
            self._learn(Spent(now, used, usual_length if length is None else length))
        self.is_seen = False

    def _learn(self, spent: Spent) -> None:
        self.spent = (*self.spent, spent)[-KEPT_SPENT:]

    def size(self, now: float) -> Use | None:
        """What a period holds, as far as is known."""
        fresh = self._fresh(now)
        if not fresh:
            return None
        return Use(
            _middle([each.tokens for each in fresh if each.tokens > 0]) or 0.0,
            _middle([each.seconds for each in fresh]) or 0.0,
            int(_middle([each.starts for each in fresh]) or 0),
        )

    def _fresh(self, now: float) -> list[Use]:
        some = FORGET_PERIODS * (self.learnt_length or DAY_SECONDS)
        kept = self._since(now - max(some, FORGET_SECONDS))
        return kept if _agree(kept) else self._since(now - some)

    def _since(self, time: float) -> list[Use]:
        return [each.use for each in self.spent if each.at >= time]

    @property
    def learnt_length(self) -> float | None:
        """How long after its opening a period's reset was told to be."""
        return _middle([each.length for each in self.spent if each.length is not None])

    def share_used(self, use: Use, now: float) -> float | None:
        """What is used since the opening, as a share of what the window holds."""
        size = self.size(now)
        return None if size is None else use.since(self.at_opening).share_of(size)

    def share_of_starts(self, starts: int, now: float) -> float:
        """What so many slots have used on the average by their end, as a share; 0 where it is not known."""
        size = self.size(now)
        return 0.0 if size is None else starts / max(1, size.starts)


def _agree(uses: list[Use]) -> bool:
    """Whether two of them are about the same."""
    return any(AGREE_WITHIN <= one.share_of(other) <= 1.0 for one in uses for other in uses if one is not other)


def _middle(values: list[float]) -> float | None:
    """Of two the larger: what a person used of the window besides made the other one smaller."""
    return sorted(values)[len(values) // 2] if values else None
