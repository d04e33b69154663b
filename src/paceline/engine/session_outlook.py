"""What live sessions will still use: until their turn ends, and until their unit is done.

Here: numbers of sessions and of the units that were done before. Never here: who is ended or started (`landing.py`).
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from paceline.core.values.tokens import Tokens
from paceline.engine.session import LiveSession
from paceline.store import Campaign, OutcomeRecord, Store, UnitResult

CACHE_READ_WEIGHT = 0.1
"""What a token that is read from a cache counts in a window: a tenth, as its price."""
WEIGHT_OF_NEWS = 0.3
"""Weight of the latest turn in the mean of a session: three turns follow a conversation that grows."""
LONG_TURN = 1.5
"""A turn that is planned for is this much longer than the mean: few turns are longer, and waiting for one costs more
than parking a turn early."""
SHORTEST_TURN = 0.3
"""The least part of a turn that a session is expected to use until its end, however long the turn already lasts."""
MOST_REMEMBERED = 200
"""Done units of a campaign whose sizes are kept: enough for a mean, and one page of the store."""
LONGER_STILL = 0.25
"""A unit that is larger than all before is expected to use this share of what it has used once more."""


class Amount(msgspec.Struct, frozen=True):
    """An amount of work: seconds of sessions, and tokens as a window counts them."""

    seconds: float = 0.0
    tokens: float = 0.0

    def plus(self, other: "Amount") -> "Amount":
        return Amount(self.seconds + other.seconds, self.tokens + other.tokens)

    def since(self, before: "Amount") -> "Amount":
        return Amount(self.seconds - before.seconds, self.tokens - before.tokens)

    def by(self, measure: str) -> float:
        """Return the amount in one measure: `tokens` or `seconds`."""
        return self.tokens if measure == "tokens" else self.seconds


NOTHING: Final = Amount()
ONE_SECOND: Final = Amount(seconds=1.0)


def mean_of(amounts: Sequence[Amount]) -> Amount:
    """Return the mean of some amounts."""
    count = len(amounts)
    return Amount(sum(each.seconds for each in amounts) / count, sum(each.tokens for each in amounts) / count)


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """What one session will use, in one measure: until its turn ends, until its unit is done, and per second."""

    turn: float
    finish: float
    rate: float
    can_land: bool


class SessionMeter:
    """What one live session has used, and what its turns use."""

    def __init__(self, session: LiveSession) -> None:
        self._counted: object = None
        self._tokens = 0.0
        self._last_end: tuple[int, float, Amount] | None = None
        self.turn: Amount | None = None
        self.used = NOTHING
        self.before = amount_of(session.unit.result)

    def read(self, session: LiveSession, now: float) -> Amount:
        """Take what the session has used up to now. Returns what is new."""
        facts, before = session.output.facts, self.used
        if facts.requests is not None and facts.requests is not self._counted:
            self._counted = facts.requests
            spent = facts.usage.by_model.values() if facts.usage is not None and not facts.usage.is_conversation else ()
            self._tokens = max(self._tokens, sum(window_tokens(each) for each in spent))
        self.used = Amount(max(0.0, now - (session.unit.started_at or now)), self._tokens)
        self._read_turn(facts.turn_ends, now)
        return self.used.since(before)

    def _read_turn(self, ends: int, now: float) -> None:
        """Measure the turns since the last end. The first one is left out: it pays for a context without a cache."""
        if self._last_end is None or ends <= self._last_end[0]:
            self._last_end = self._last_end or ((ends, now, self.used) if ends else None)
            return
        count, used = ends - self._last_end[0], self.used.since(self._last_end[2])
        mean = Amount(used.seconds / count, used.tokens / count)
        if self.turn is not None:
            old, new = 1 - WEIGHT_OF_NEWS, WEIGHT_OF_NEWS
            mean = Amount(old * self.turn.seconds + new * mean.seconds, old * self.turn.tokens + new * mean.tokens)
        self.turn, self._last_end = mean, (ends, now, self.used)

    @property
    def has_turns(self) -> bool:
        return self._last_end is not None

    def turn_left(self, turn: float, measure: str) -> float:
        """Return what is left of the present turn, if turns use so much."""
        begun = 0.0 if self._last_end is None else self.used.since(self._last_end[2]).by(measure)
        return max(SHORTEST_TURN * turn, LONG_TURN * turn - begun)


class UnitSizes:
    """The sizes of the units that were done, by campaign."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sizes: dict[str, dict[str, deque[float]]] = {}

    def learn(self, records: Iterable[OutcomeRecord]) -> None:
        """Add the units that are done."""
        for record in records:
            campaign = record.unit_id.partition("/")[0]
            if record.transition.step == "succeed" and record.result is not None and campaign in self._sizes:
                _add(self._sizes[campaign], record.result)

    def remaining(self, campaign: Campaign, used: float, measure: str) -> float:
        """Return what a unit that has used so much will still use. With nothing known it is expected to double."""
        sizes = self._known(campaign)[measure]
        if not sizes:
            return used
        longer = [size for size in sizes if size > used]
        return sum(longer) / len(longer) - used if longer else LONGER_STILL * used

    def mean(self, campaign: Campaign, measure: str) -> float | None:
        """Return what a unit uses; None where none is done."""
        sizes = self._known(campaign)[measure]
        return sum(sizes) / len(sizes) if sizes else None

    def resume_cost(self, campaign: Campaign, result: UnitResult) -> int:
        """Return the tokens that a parked unit will use until it is done: its context once more, and what is left."""
        left = self.remaining(campaign, amount_of(result).tokens, "tokens")
        return int((result.context_tokens or 0) + left)

    def _known(self, campaign: Campaign) -> dict[str, deque[float]]:
        if campaign.name not in self._sizes:
            found = {measure: deque[float](maxlen=MOST_REMEMBERED) for measure in ("seconds", "tokens")}
            self._sizes[campaign.name] = found
            for unit in self._store.units(campaign=campaign.name, state="done", limit=MOST_REMEMBERED).units:
                _add(found, unit.result)
        return self._sizes[campaign.name]


def _add(sizes: dict[str, deque[float]], result: UnitResult) -> None:
    size = amount_of(result)
    for measure, known in sizes.items():
        if size.by(measure) > 0:
            known.append(size.by(measure))


def amount_of(result: UnitResult) -> Amount:
    """Return what the attempts of a unit have used, without context that was paid again."""
    tokens = 0.0 if result.tokens is None else max(0.0, window_tokens(result.tokens) - result.lost_tokens)
    return Amount(result.ran_seconds, tokens)


def window_tokens(tokens: Tokens) -> float:
    """Return the tokens as a window counts them."""
    return tokens.input + tokens.cache_write + tokens.output + CACHE_READ_WEIGHT * tokens.cache_read
