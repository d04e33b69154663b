"""The end of sessions at a turn: on request, or before their quota window closes.

A parked session pays for its context again. So towards the end of a window nothing starts that the window cannot carry
any more, sessions that are close to their end finish, and the others are parked at the end of a turn: there a session
has nothing at work that could be lost (`LiveSession.check_turn`). Sessions that show no turns, or cannot be resumed,
run to their own end.
Here: requests to end (`commands.end_at_turn`), and what is decided from the use of windows and the sizes of units.
"""

import logging
import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from paceline.core import WindowStatus
from paceline.core.gates.start_meters import StartCap
from paceline.core.values.scopes import is_provider_scope
from paceline.core.values.session_output import Tokens
from paceline.engine.journal import EngineParts
from paceline.engine.session.live_session import LiveSession
from paceline.engine.session.unit_stages import Preparation, with_result
from paceline.events import Event
from paceline.store import Campaign, OutcomeRecord, Store, UnitResult
from paceline.store.unit_result import EndRequest

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


class Turn(NamedTuple):
    """What a turn uses."""

    tokens: float
    seconds: float


NO_TURN: Final = Turn(0.0, 1.0)


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens that one session will use: until its turn ends, until its unit is done, and per second."""

    turn: float
    finish: float
    rate: float
    can_land: bool


class SessionMeter:
    """What one live session has used, and what its turns use."""

    def __init__(self, session: LiveSession) -> None:
        self._counted: object = None
        self._last_end: tuple[int, float, float] | None = None
        self.turn: Turn | None = None
        self.used = 0.0
        self.before = tokens_of(session.unit.result)

    def read(self, session: LiveSession, now: float) -> float:
        """Take the tokens that the session has used up to now. Returns how many are new."""
        facts, before = session.output.facts, self.used
        if facts.requests is not None and facts.requests is not self._counted:
            self._counted = facts.requests
            spent = facts.usage.by_model.values() if facts.usage is not None and not facts.usage.is_conversation else ()
            self.used = max(self.used, sum(window_tokens(each) for each in spent))
        self._read_turn(facts.turn_ends, now)
        return self.used - before

    def _read_turn(self, ends: int, now: float) -> None:
        """Measure the turns since the last end. The first one is left out: it pays for a context without a cache."""
        if self._last_end is None or ends <= self._last_end[0]:
            self._last_end = self._last_end or ((ends, now, self.used) if ends else None)
            return
        count_before, ended_at, used = self._last_end
        count = ends - count_before
        turn = Turn((self.used - used) / count, (now - ended_at) / count)
        if self.turn is not None:
            old, new = 1 - WEIGHT_OF_NEWS, WEIGHT_OF_NEWS
            turn = Turn(old * self.turn.tokens + new * turn.tokens, old * self.turn.seconds + new * turn.seconds)
        self.turn, self._last_end = turn, (ends, now, self.used)

    @property
    def has_turns(self) -> bool:
        return self._last_end is not None

    def turn_left(self, turn: float) -> float:
        """Return what is left of the present turn, if turns use so much."""
        begun = 0.0 if self._last_end is None else self.used - self._last_end[2]
        return max(SHORTEST_TURN * turn, LONG_TURN * turn - begun)


class UnitSizes:
    """The tokens of the units that were done, by campaign."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sizes: dict[str, deque[float]] = {}

    def learn(self, record: OutcomeRecord) -> None:
        """Add the unit if it is done."""
        campaign = record.unit_id.partition("/")[0]
        if record.transition.step == "succeed" and record.result is not None and campaign in self._sizes:
            _add(self._sizes[campaign], record.result)

    def remaining(self, campaign: Campaign, used: float) -> float:
        """Return what a unit that has used so much will still use. With nothing known it is expected to double."""
        sizes = self._known(campaign)
        if not sizes:
            return used
        longer = [size for size in sizes if size > used]
        return sum(longer) / len(longer) - used if longer else LONGER_STILL * used

    def mean(self, campaign: Campaign) -> float | None:
        """Return what a unit uses; None where none is done."""
        sizes = self._known(campaign)
        return sum(sizes) / len(sizes) if sizes else None

    def resume_cost(self, campaign: Campaign, result: UnitResult) -> int:
        """Return the tokens that a parked unit will use until it is done: its context once more, and what is left."""
        return int((result.context_tokens or 0) + self.remaining(campaign, tokens_of(result)))

    def _known(self, campaign: Campaign) -> deque[float]:
        if campaign.name not in self._sizes:
            found = self._sizes[campaign.name] = deque[float](maxlen=MOST_REMEMBERED)
            for unit in self._store.units(campaign=campaign.name, state="done", limit=MOST_REMEMBERED).units:
                _add(found, unit.result)
        return self._sizes[campaign.name]


def _add(sizes: deque[float], result: UnitResult) -> None:
    if (size := tokens_of(result)) > 0:
        sizes.append(size)


def tokens_of(result: UnitResult) -> float:
    """Return what the attempts of a unit have used, without context that was paid again."""
    return 0.0 if result.tokens is None else max(0.0, window_tokens(result.tokens) - result.lost_tokens)


def window_tokens(tokens: Tokens) -> float:
    """Return the tokens as a window counts them."""
    return tokens.input + tokens.cache_write + tokens.output + CACHE_READ_WEIGHT * tokens.cache_read


log = logging.getLogger("paceline.engine")

STEP_SECONDS = 1.0
"""Windows are checked as often as this while the same sessions run: passes may be milliseconds apart."""
MEASURED_RATIO = 0.02
"""What a token takes of a window is known once this much of it was used: less is rounding."""
RECENT_RATIO = 0.2
"""It is measured over this much of the window: what a session uses changes as its conversation grows."""
SMALLEST_STEP = 0.002
"""A reading that has grown by less is no news: estimates grow with every second."""
MOST_AHEAD = 0.1
"""How far the use of a window is extrapolated beyond its last reading: more would land sessions on a guess."""
COLD_AT_ONCE = 2
"""Resumed sessions that may wait for their first answer at once: each pays for its whole context, and its reading
shows what is left before the next one starts."""
COLD_SECONDS = 120.0
"""A resumed session without an answer for so long holds nobody back: its turn is long, or it hangs."""
MARGIN = 1.3
"""How much more than expected a session may use until its unit is done: sizes of units differ widely, and one that
does not fit pays for its context again. Of 1.0 and 1.3 the latter lost a seventh less in `benchmarks.cold`."""
LARGE_ENOUGH = 20_000
"""Contexts below this are no reason to wait: they cost as much as a fresh start."""
LANDING = "the rest of the {window} window is left to sessions that can finish"


class LandingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How many sessions may start, and which of the live ones are to end at their turn. None: any number."""

    starts: int | None
    landing: frozenset[str] = frozenset()
    has_room: bool = False
    """Whether the window carries one more session to its end."""


def plan_landing(left: float, seconds: float, sessions: Mapping[str, Outlook], need: float | None) -> LandingPlan:
    """Return what to do with so much left of a window that ends in so many seconds.

    `need` is what one more session would use; None if nobody knows.
    """
    by_reset = {name: min(each.finish, each.rate * seconds) for name, each in sessions.items()}
    spare = left - sum(by_reset.values())
    landing = frozenset[str]() if spare >= 0 else _landing(left, sessions, by_reset)
    if need is None:
        return LandingPlan(starts=0 if landing else None, landing=landing)
    rate = sum(each.rate for each in sessions.values()) / max(1, len(sessions))
    need = min(need, rate * seconds) if rate else need
    starts = math.floor(max(0.0, spare) / need) if need > 0 else 0
    has_room = starts > 0 and not landing
    if not sessions:
        starts = max(1, starts)  # what is left is used, by one
    return LandingPlan(starts=starts, landing=landing, has_room=has_room)


def _landing(left: float, sessions: Mapping[str, Outlook], by_reset: Mapping[str, float]) -> frozenset[str]:
    """Return the sessions that cannot finish, once what they use until their turns end is all that is left for them."""
    turns = sum(each.turn for each in sessions.values())
    finishing = 0.0
    rest = sorted(sessions, key=lambda name: by_reset[name])
    while rest:
        first = sessions[rest[0]]
        more = by_reset[rest[0]]
        if first.can_land and finishing + more + turns - first.turn > left:
            break
        finishing, turns = finishing + more, turns - first.turn
        rest.pop(0)
    if left - finishing > turns:
        return frozenset()
    landing = [name for name in rest if sessions[name].can_land]
    if len(landing) == len(sessions):
        landing = landing[1:]  # the last one uses what is really left; parking it earlier would save nothing
    return frozenset(landing)


class WindowMeter:
    """The use of one window between its readings, and what a token takes of the window."""

    def __init__(self) -> None:
        self._readings: list[tuple[float, float]] = []
        self._cost = 0.0

    def read(self, ratio: float, used: float) -> None:
        """Take the reading of the window, as it is by now. `used` are the tokens of all sessions until then."""
        if self._readings and ratio < self._readings[-1][0]:
            self._readings.clear()  # a new period
        if self._readings and ratio - self._readings[-1][0] < SMALLEST_STEP:
            return
        self._readings.append((ratio, used))
        while len(self._readings) > 2 and ratio - self._readings[1][0] >= RECENT_RATIO:
            del self._readings[0]
        first_ratio, first_used = self._readings[0]
        if ratio - first_ratio >= MEASURED_RATIO and used > first_used:
            self._cost = (ratio - first_ratio) / (used - first_used)

    def left(self, used: float, reserve: float) -> float | None:
        """Return how many tokens the window still carries; None while nobody knows."""
        if not self._cost or not self._readings:
            return None
        ratio, at_reading = self._readings[-1]
        ratio += min(MOST_AHEAD, max(0.0, (used - at_reading) * self._cost))
        return max(0.0, 1.0 - reserve - ratio) / self._cost


class Landings:
    """Watches the windows of live sessions, holds back starts, and asks sessions to end at their turns.

    Each request is stored with its event, so it outlives the engine.
    """

    def __init__(self, parts: EngineParts, history: UnitSizes, preparing: Mapping[str, Preparation]) -> None:
        self._store, self._governor = parts.store, parts.driver.governor
        self._journal, self._live = parts.journal, parts.live
        self._history, self._preparing = history, preparing
        self._meters: dict[str, SessionMeter] = {}
        self._windows: dict[tuple[str, str], WindowMeter] = {}
        self._used: dict[str, float] = {}
        self._held: dict[str, StartCap] = {}
        self._landed: set[str] = set()
        self._stepped_at = -math.inf
        self._counted: dict[str, bool] = {}
        self._campaigns: dict[str, tuple[Campaign, ...]] = {}
        self._turns: dict[str, Turn] = {}

    def step(self, now: float) -> None:
        """Check all windows, and act on them."""
        sessions = [session for session in self._live.values() if session.account is not None]
        if not (sessions or self._held or self._turns):
            return
        is_unchanged = self._meters.keys() == {session.handle.attempt_id for session in sessions}
        if is_unchanged and 0 <= now - self._stepped_at < STEP_SECONDS:
            return
        self._stepped_at = now
        by_scope = self._read_sessions(sessions, now)
        landing: dict[str, EndRequest] = {}
        for scope in {*by_scope, *self._held, *self._turns}:
            landing |= self._step_scope(scope, by_scope.get(scope, []), now)
        self._ask(landing, now)

    def _read_sessions(self, sessions: Sequence[LiveSession], now: float) -> dict[str, list[LiveSession]]:
        """Meter the sessions. Returns them by the scopes that may have windows."""
        by_scope: dict[str, list[LiveSession]] = {}
        for session in sessions:
            attempt = session.handle.attempt_id
            if attempt not in self._meters:
                self._meters[attempt] = SessionMeter(session)
            new = self._meters[attempt].read(session, now)
            for scope in session.ticket.scopes:
                if is_provider_scope(scope):
                    by_scope.setdefault(scope, []).append(session)
                    self._used[scope] = self._used.get(scope, 0.0) + new
        for attempt in self._meters.keys() - {session.handle.attempt_id for session in sessions}:
            del self._meters[attempt]
        return by_scope

    def _step_scope(self, scope: str, sessions: Sequence[LiveSession], now: float) -> dict[str, EndRequest]:
        """Set the hold of a scope. Returns the requests for the sessions that are to end."""
        status = self._governor.status(scope, now=now)
        windows = status.windows if status is not None else ()
        if not windows:
            self._set_hold(scope, None, now)
            return {}
        running = [session for session in sessions if session.ending is None]
        holds, requests, has_room = [], dict[str, EndRequest](), True
        for window in windows:
            plan = self._plan(scope, window, running, status.reserve if status is not None else 0.0, now)
            if plan is None:
                has_room = has_room and window.state in ("open", "wave")
                continue
            has_room = has_room and plan.has_room
            if plan.starts is not None:
                holds.append(_hold(scope, window, plan.starts, len(running), now))
            requests |= {name: _request(name, window, running) for name in plan.landing}
        holds += self._cold_hold(scope, windows, running, now)
        self._set_hold(scope, min(holds, key=lambda hold: hold.starts or 0, default=None), now)
        if has_room and holds and scope in self._landed:
            self._landed.discard(scope)
            self._journal.wake(scope)  # the window holds more than it seemed: those that were parked for it continue
        if requests:
            self._landed.add(scope)
        return requests

    def _plan(
        self, scope: str, window: WindowStatus, sessions: Sequence[LiveSession], reserve: float, now: float
    ) -> LandingPlan | None:
        """Return the plan for an open window whose use is known."""
        meter = self._windows.setdefault((scope, window.name), WindowMeter())
        if window.state not in ("open", "wave") or window.best_ratio is None:
            return None
        used = self._used.get(scope, 0.0)
        meter.read(window.best_ratio, used)
        left = meter.left(used, reserve) if self._counts_tokens(scope, sessions) else None
        if left is None:
            return None  # where no context is known, parking has no known price, and nothing is held back for it
        outlooks = self._outlooks(scope, sessions)
        seconds = math.inf if window.expected_reset is None else max(0.0, window.expected_reset - now)
        return plan_landing(left, seconds, outlooks, self._need(scope, sessions))

    def _counts_tokens(self, scope: str, sessions: Sequence[LiveSession]) -> bool:
        """Return whether all sessions that work there count their tokens, or did when some last worked."""
        meters = [self._meters[session.handle.attempt_id] for session in sessions]
        if at_work := [meter for meter in meters if meter.has_turns]:
            self._counted[scope] = all(meter.used > 0 for meter in at_work)
        return self._counted.get(scope, False)

    def _need(self, scope: str, sessions: Sequence[LiveSession]) -> float | None:
        """Return what one more unit uses: as those of the campaigns that run, or that ran last."""
        campaigns = {session.campaign.name: session.campaign for session in sessions}
        if campaigns:
            self._campaigns[scope] = tuple(campaigns.values())
        sizes = [self._history.mean(campaign) for campaign in self._campaigns.get(scope, ())]
        known = [size for size in sizes if size is not None]
        return sum(known) / len(known) if known else None

    def _outlooks(self, scope: str, sessions: Sequence[LiveSession]) -> dict[str, Outlook]:
        """Return what each session will use. One that has not ended a turn is taken for one like the others."""
        meters = {session.unit.id: self._meters[session.handle.attempt_id] for session in sessions}
        if turns := [meter.turn for meter in meters.values() if meter.turn is not None]:
            count = len(turns)
            self._turns[scope] = Turn(
                sum(each.tokens for each in turns) / count, sum(each.seconds for each in turns) / count
            )
        usual = self._turns.get(scope, NO_TURN)
        found = {}
        for session in sessions:
            meter = meters[session.unit.id]
            own = meter.turn or usual
            turn = meter.turn_left(own.tokens)
            finish = max(turn, MARGIN * self._history.remaining(session.campaign, meter.before + meter.used))
            can_land = meter.has_turns and session.conversation is not None
            rate = own.tokens / own.seconds if own.seconds > 0 else 0.0
            found[session.unit.id] = Outlook(turn=turn, finish=finish, rate=rate, can_land=can_land)
        return found

    def _cold_hold(
        self, scope: str, windows: Sequence[WindowStatus], sessions: Sequence[LiveSession], now: float
    ) -> list[StartCap]:
        """Return the hold for resumed sessions that pay for their context, or will once the window is open."""
        cold = [session for session in sessions if _is_cold(session, now)]
        is_closed = any(window.state in ("closed", "probing") for window in windows)
        if not cold and not (is_closed and scope in self._turns):
            return []
        detail = f"few at a time continue on {scope}: each pays for its conversation again"
        return [StartCap(detail, now + COLD_SECONDS, starts=max(0, COLD_AT_ONCE - len(cold)))]

    def _set_hold(self, scope: str, hold: StartCap | None, now: float) -> None:
        if hold is None and scope not in self._held:
            return
        self._governor.cap_starts(scope, hold, now=now)
        if hold is None:
            del self._held[scope]
        else:
            self._held[scope] = hold

    def _ask(self, landing: Mapping[str, EndRequest], now: float) -> None:
        """Ask sessions to end at their turn, and withdraw requests whose reason is gone."""
        for unit_id, session in self._live.items():
            asked = session.unit.result.end_request_of(session.unit.attempt_id)
            if session.ending is not None:
                continue
            if asked is None and unit_id in landing:
                self._request(session, landing[unit_id], now)
            elif asked is not None and asked.is_landing and unit_id not in landing:
                self._request(session, None, now)

    # -- requests ------------------------------------------------------------------------------

    def carry_out(self, command: Event, now: float) -> None:
        """Take the request of a command, `commands.end_at_turn`."""
        unit_id = str(command.fields["unit"])
        request = msgspec.convert({**command.fields, "attempt_id": command.fields["attempt"]}, EndRequest)
        holder = self._live.get(unit_id) or self._preparing.get(unit_id)
        if holder is not None and holder.unit.attempt_id == request.attempt_id:
            self._request(holder, request, now)
        # A unit that a person paused just as its attempt ended is held. Otherwise that end counts as usual.
        elif not (request.is_held and self._store.move_units([unit_id], "held", request.reason, now=now)):
            log.info("%s has no session that could be ended: %s", unit_id, request.reason)

    def _request(self, holder: LiveSession | Preparation, request: EndRequest | None, now: float) -> None:
        """Store the request with its event, then let the session end at its next turn; without one it continues."""
        reason = "it continues: its window holds more" if request is None else request.reason
        resume_at = None if request is None else request.resume_at
        unit = with_result(holder.unit, end_request=request)
        with self._journal.together():
            if not self._store.save_progress(unit.id, unit.fence, phase=None, result=unit.result):
                return  # it was cancelled
            fields: dict[str, object] = {"reason": reason, "resume_at": resume_at}
            self._journal.append(Event("unit.ending", now, None, unit.id, fields))
        if isinstance(holder, LiveSession):
            holder.ask_end(unit)
        else:
            holder.unit = unit


def _hold(scope: str, window: WindowStatus, starts: int, live: int, now: float) -> StartCap:
    used = f"{window.best_ratio or 0.0:.0%} of the {window.name} window of {scope} is used"
    running = "the session that runs needs" if live == 1 else f"the {live} sessions that run need"
    until = window.expected_reset if window.expected_reset is not None else now + COLD_SECONDS
    return StartCap(f"{used}, and {running} the rest", until, starts=starts)


def _request(unit_id: str, window: WindowStatus, sessions: Sequence[LiveSession]) -> EndRequest:
    attempt = next(session.unit.attempt_id for session in sessions if session.unit.id == unit_id)
    reason = LANDING.format(window=window.name)
    return EndRequest(attempt_id=attempt or "", reason=reason, resume_at=window.expected_reset, is_landing=True)


def _is_cold(session: LiveSession, now: float) -> bool:
    """Return whether it was resumed and has not paid for its conversation yet."""
    context = session.unit.result.context_tokens or 0
    is_new = now - (session.unit.started_at or now) < COLD_SECONDS
    was_parked = session.unit.conversation_id is not None and session.unit.result.carried.is_parked
    return was_parked and is_new and context >= LARGE_ENOUGH and session.output.facts.requests is None
