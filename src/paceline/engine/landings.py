"""The landing of sessions before their quota window closes.

A parked session pays for its context again. So towards the end of a window nothing starts that the window cannot carry
any more, sessions that are close to their end finish, and the others are parked at the end of a turn.
Here: what is decided from the use of windows. Never here: how a session ends at a turn (`end_requests.py`).
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from paceline.core import Governor, WindowStatus
from paceline.core.gates.landing_hold import LandingHold
from paceline.core.values.scopes import is_provider_scope
from paceline.engine.end_requests import EndRequests
from paceline.engine.journal import EngineJournal
from paceline.engine.session import LiveSession
from paceline.engine.session_outlook import ONE_SECOND, Amount, Outlook, SessionMeter, UnitSizes, mean_of
from paceline.store import Campaign, OutcomeRecord
from paceline.store.unit_result import EndRequest

STEP_SECONDS = 1.0
"""Windows are checked as often as this while the same sessions run: passes may be milliseconds apart."""
MEASURED_RATIO = 0.02
"""What a unit of work takes of a window is known once this much of it was used: less is rounding."""
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
    """The use of one window between its readings, and what it takes of the window."""

    def __init__(self) -> None:
        self._readings: list[tuple[float, Amount]] = []
        self._cost = {"tokens": 0.0, "seconds": 0.0}

    def read(self, ratio: float, used: Amount) -> None:
        """Take the reading of the window, as it is by now. `used` is what sessions have used in all."""
        if self._readings and ratio < self._readings[-1][0]:
            self._readings.clear()  # a new period
        if self._readings and ratio - self._readings[-1][0] < SMALLEST_STEP:
            return
        self._readings.append((ratio, used))
        while len(self._readings) > 2 and ratio - self._readings[1][0] >= RECENT_RATIO:
            del self._readings[0]
        first_ratio, first_used = self._readings[0]
        if ratio - first_ratio >= MEASURED_RATIO:
            spent = used.since(first_used)
            for measure in self._cost:
                if spent.by(measure) > 0:
                    self._cost[measure] = (ratio - first_ratio) / spent.by(measure)

    def left(self, used: Amount, measure: str, reserve: float) -> float | None:
        """Return how much work the window still carries; None while nobody knows."""
        cost = self._cost[measure]
        if not cost or not self._readings:
            return None
        ratio, at_reading = self._readings[-1]
        ratio += min(MOST_AHEAD, max(0.0, used.since(at_reading).by(measure) * cost))
        return max(0.0, 1.0 - reserve - ratio) / cost


class Landings:
    """Watches the windows of live sessions, holds back starts, and asks sessions to end at their turns."""

    def __init__(
        self,
        governor: Governor,
        journal: EngineJournal,
        end_requests: EndRequests,
        live: Mapping[str, LiveSession],
        history: UnitSizes,
    ) -> None:
        self._governor = governor
        self._journal = journal
        self._end_requests = end_requests
        self._live = live
        self._history = history
        self._meters: dict[str, SessionMeter] = {}
        self._windows: dict[tuple[str, str], WindowMeter] = {}
        self._used: dict[str, Amount] = {}
        self._held: dict[str, LandingHold] = {}
        self._landed: set[str] = set()
        self._stepped_at = -math.inf
        self._measures: dict[str, str] = {}
        self._campaigns: dict[str, tuple[Campaign, ...]] = {}
        self._turns: dict[str, Amount] = {}

    def learn(self, records: Iterable[OutcomeRecord]) -> None:
        """Learn the sizes of units from attempts that are over."""
        self._history.learn(records)

    def step(self, now: float) -> None:
        """Check all windows, and act on them."""
        is_unchanged = self._meters.keys() == {session.handle.attempt_id for session in self._live.values()}
        if is_unchanged and 0 <= now - self._stepped_at < STEP_SECONDS:
            return
        self._stepped_at = now
        by_scope = self._read_sessions(now)
        landing: dict[str, EndRequest] = {}
        for scope in {*by_scope, *self._held, *self._turns}:
            landing |= self._step_scope(scope, by_scope.get(scope, []), now)
        self._ask(landing, now)

    def _read_sessions(self, now: float) -> dict[str, list[LiveSession]]:
        """Meter all live sessions. Returns them by the scopes that may have windows."""
        by_scope: dict[str, list[LiveSession]] = {}
        for session in self._live.values():
            attempt = session.handle.attempt_id
            if attempt not in self._meters:
                self._meters[attempt] = SessionMeter(session)
            if session.account is None:
                continue
            new = self._meters[attempt].read(session, now)
            for scope in session.ticket.scopes:
                if is_provider_scope(scope):
                    by_scope.setdefault(scope, []).append(session)
                    self._used[scope] = self._used.get(scope, Amount()).plus(new)
        live = {session.handle.attempt_id for session in self._live.values()}
        for attempt in self._meters.keys() - live:
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
        self._set_hold(scope, min(holds, key=lambda hold: hold.starts, default=None), now)
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
        used = self._used.get(scope, Amount())
        meter.read(window.best_ratio, used)
        measure = self._measure(scope, sessions)
        left = meter.left(used, measure, reserve) if measure == "tokens" else None
        if left is None:
            return None  # where no context is known, parking has no known price, and nothing is held back for it
        outlooks = self._outlooks(scope, sessions, measure)
        seconds = math.inf if window.expected_reset is None else max(0.0, window.expected_reset - now)
        return plan_landing(left, seconds, outlooks, self._need(scope, sessions, measure))

    def _measure(self, scope: str, sessions: Sequence[LiveSession]) -> str:
        """Return what use is measured by: tokens where all sessions that work count them, else time."""
        meters = [self._meters[session.handle.attempt_id] for session in sessions]
        if at_work := [meter for meter in meters if meter.has_turns]:
            self._measures[scope] = "tokens" if all(meter.used.tokens > 0 for meter in at_work) else "seconds"
        return self._measures.get(scope, "seconds")

    def _need(self, scope: str, sessions: Sequence[LiveSession], measure: str) -> float | None:
        """Return what one more unit uses: as those of the campaigns that run, or that ran last."""
        campaigns = {session.campaign.name: session.campaign for session in sessions}
        if campaigns:
            self._campaigns[scope] = tuple(campaigns.values())
        sizes = [self._history.mean(campaign, measure) for campaign in self._campaigns.get(scope, ())]
        known = [size for size in sizes if size is not None]
        return sum(known) / len(known) if known else None

    def _outlooks(self, scope: str, sessions: Sequence[LiveSession], measure: str) -> dict[str, Outlook]:
        """Return what each session will use. One that has not ended a turn is taken for one like the others."""
        meters = {session.unit.id: self._meters[session.handle.attempt_id] for session in sessions}
        if turns := [meter.turn for meter in meters.values() if meter.turn is not None]:
            self._turns[scope] = mean_of(turns)
        usual = self._turns.get(scope, ONE_SECOND)
        found = {}
        for session in sessions:
            meter = meters[session.unit.id]
            own = meter.turn or usual
            turn = meter.turn_left(own.by(measure), measure)
            used = meter.before.plus(meter.used).by(measure)
            finish = max(turn, MARGIN * self._history.remaining(session.campaign, used, measure))
            can_land = meter.has_turns and session.conversation is not None
            rate = own.by(measure) / own.seconds if own.seconds > 0 else 0.0
            found[session.unit.id] = Outlook(turn=turn, finish=finish, rate=rate, can_land=can_land)
        return found

    def _cold_hold(
        self, scope: str, windows: Sequence[WindowStatus], sessions: Sequence[LiveSession], now: float
    ) -> list[LandingHold]:
        """Return the hold for resumed sessions that pay for their context, or will once the window is open."""
        cold = [session for session in sessions if _is_cold(session, now)]
        is_closed = any(window.state in ("closed", "probing") for window in windows)
        if not cold and not (is_closed and scope in self._turns):
            return []
        detail = f"few at a time continue on {scope}: each pays for its conversation again"
        return [LandingHold(max(0, COLD_AT_ONCE - len(cold)), detail, now + COLD_SECONDS)]

    def _set_hold(self, scope: str, hold: LandingHold | None, now: float) -> None:
        if hold is None and scope not in self._held:
            return
        self._governor.set_landing(scope, hold, now=now)
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
                self._end_requests.request(session, landing[unit_id], now)
            elif asked is not None and asked.is_landing and unit_id not in landing:
                self._end_requests.withdraw(session, now)


def _hold(scope: str, window: WindowStatus, starts: int, live: int, now: float) -> LandingHold:
    used = f"{window.best_ratio or 0.0:.0%} of the {window.name} window of {scope} is used"
    running = "the session that runs needs" if live == 1 else f"the {live} sessions that run need"
    until = window.expected_reset if window.expected_reset is not None else now + COLD_SECONDS
    return LandingHold(starts, f"{used}, and {running} the rest", until)


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
