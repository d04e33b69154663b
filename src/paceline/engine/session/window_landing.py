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
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from paceline.core import WindowStatus
from paceline.core.gates.start_meters import StartCap
from paceline.core.values.scopes import is_provider_scope
from paceline.engine.journal import EngineParts
from paceline.engine.session.live_session import Attempt, LiveSession, Turn, window_tokens, with_result
from paceline.events import Event
from paceline.store import Campaign, OutcomeRecord, Store, UnitResult
from paceline.store.unit_result import EndRequest

MOST_REMEMBERED = 200
"""Done units of a campaign whose sizes are kept: enough for a mean, and one page of the store."""
LONGER_STILL = 0.25
"""A unit that is larger than all before is expected to use this share of what it has used once more."""


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens that one session will use: until its turn ends, until its unit is done, and per second."""

    turn: float
    finish: float
    rate: float
    can_land: bool


class UnitSizes:
    """The tokens of the units that were done, by campaign."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sizes: dict[str, deque[float]] = {}

    def learn(self, record: OutcomeRecord) -> None:
        """Add the unit if it is done."""
        campaign = record.unit_id.partition("/")[0]
        if record.transition.step == "succeed" and record.result is not None and campaign in self._sizes:
            self._sizes[campaign].extend(_sizes([record.result]))

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
            done = self._store.units(campaign=campaign.name, state="done", limit=MOST_REMEMBERED).units
            self._sizes[campaign.name] = deque(_sizes(unit.result for unit in done), maxlen=MOST_REMEMBERED)
        return self._sizes[campaign.name]


def _sizes(results: Iterable[UnitResult]) -> Iterator[float]:
    return (size for result in results if (size := tokens_of(result)) > 0)


def tokens_of(result: UnitResult) -> float:
    """Return what the attempts of a unit have used, without context that was paid again."""
    return 0.0 if result.tokens is None else max(0.0, window_tokens(result.tokens) - result.lost_tokens)


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
    """Return what to do with so much left of a window for so many seconds. One more session would use `need`."""
    by_reset = {name: min(each.finish, each.rate * seconds) for name, each in sessions.items()}
    spare = left - sum(by_reset.values())
    landing = frozenset() if spare >= 0 else _landing(left, sessions, by_reset)
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


class ScopeUse(msgspec.Struct):
    """What is known about one scope that may have windows."""

    used: float = 0.0
    """The tokens of all sessions so far."""
    meters: dict[str, WindowMeter] = msgspec.field(default_factory=dict)
    hold: StartCap | None = None
    has_landed: bool = False
    counts_tokens: bool = False
    """Whether all sessions that work there count their tokens, or did when some last worked."""
    campaigns: dict[str, Campaign] = msgspec.field(default_factory=dict)
    """Those that run there, or that ran last."""
    turn: Turn | None = None
    """The mean turn of its sessions."""


class Landings:
    """Watches windows, holds back starts, and asks sessions to end at their turns. A request outlives the engine."""

    def __init__(self, parts: EngineParts, history: UnitSizes, preparing: Mapping[str, Attempt]) -> None:
        self._store, self._governor = parts.store, parts.driver.governor
        self._journal, self._live = parts.journal, parts.live
        self._history, self._preparing = history, preparing
        self._attempts: set[str] = set()
        self._scopes: dict[str, ScopeUse] = {}
        self._stepped_at = -math.inf

    def step(self, now: float) -> None:
        """Check all windows, and act on them."""
        sessions = [session for session in self._live.values() if session.account is not None]
        if not (sessions or self._scopes):
            return
        attempts = {session.handle.attempt_id for session in sessions}
        if self._attempts == attempts and 0 <= now - self._stepped_at < STEP_SECONDS:
            return
        self._attempts, self._stepped_at = attempts, now
        by_scope: dict[str, list[LiveSession]] = {}
        for session in sessions:
            new = session.meter(now)
            for scope in filter(is_provider_scope, session.ticket.scopes):
                by_scope.setdefault(scope, []).append(session)
                self._scopes.setdefault(scope, ScopeUse()).used += new
        landing: dict[str, EndRequest] = {}
        for scope, use in self._scopes.items():
            landing |= self._step_scope(scope, use, by_scope.get(scope, []), now)
        self._ask(landing, now)

    def _step_scope(
        self, scope: str, use: ScopeUse, sessions: Sequence[LiveSession], now: float
    ) -> dict[str, EndRequest]:
        """Set the hold of a scope. Returns the requests for the sessions that are to end."""
        status = self._governor.status(scope, now=now)
        if status is None or not status.windows:
            self._set_hold(scope, use, None, now)
            return {}
        running = [session for session in sessions if session.ending is None]
        holds, requests, has_room = [], dict[str, EndRequest](), True
        for window in status.windows:
            plan = self._plan(use, window, running, status.reserve, now)
            if plan is None:
                has_room = has_room and window.state in ("open", "wave")
                continue
            has_room = has_room and plan.has_room
            if plan.starts is not None:
                used = f"{window.best_ratio or 0.0:.0%} of the {window.name} window of {scope} is used"
                others = f"the {len(running)} sessions that run need"
                needing = "the session that runs needs" if len(running) == 1 else others
                until = window.expected_reset if window.expected_reset is not None else now + COLD_SECONDS
                holds.append(StartCap(f"{used}, and {needing} the rest", until, starts=plan.starts))
            requests |= {
                each.unit.id: EndRequest(
                    attempt_id=each.unit.attempt_id or "",
                    reason=LANDING.format(window=window.name),
                    resume_at=window.expected_reset,
                    is_landing=True,
                )
                for each in running
                if each.unit.id in plan.landing
            }
        cold = sum(_is_cold(session, now) for session in running)
        if cold or (use.turn is not None and any(each.state in ("closed", "probing") for each in status.windows)):
            detail = f"few at a time continue on {scope}: each pays for its conversation again"
            holds.append(StartCap(detail, now + COLD_SECONDS, starts=max(0, COLD_AT_ONCE - cold)))
        self._set_hold(scope, use, min(holds, key=lambda hold: hold.starts or 0, default=None), now)
        if has_room and holds and use.has_landed:
            use.has_landed = False
            self._journal.wake(scope)  # the window holds more than it seemed: those that were parked for it continue
        use.has_landed = use.has_landed or bool(requests)
        return requests

    def _plan(
        self, use: ScopeUse, window: WindowStatus, sessions: Sequence[LiveSession], reserve: float, now: float
    ) -> LandingPlan | None:
        """Return the plan for an open window whose use is known. Without contexts, parking has no known price."""
        meter = use.meters.setdefault(window.name, WindowMeter())
        if window.state not in ("open", "wave") or window.best_ratio is None:
            return None
        meter.read(window.best_ratio, use.used)
        if at_work := [each for each in sessions if each.has_turns]:
            use.counts_tokens = all(each.used > 0 for each in at_work)
        left = meter.left(use.used, reserve) if use.counts_tokens else None
        if left is None:
            return None
        seconds = math.inf if window.expected_reset is None else max(0.0, window.expected_reset - now)
        use.campaigns = {session.campaign.name: session.campaign for session in sessions} or use.campaigns
        sizes = [size for each in use.campaigns.values() if (size := self._history.mean(each)) is not None]
        need = sum(sizes) / len(sizes) if sizes else None
        return plan_landing(left, seconds, self._outlooks(use, sessions), need)

    def _outlooks(self, use: ScopeUse, sessions: Sequence[LiveSession]) -> dict[str, Outlook]:
        """Return what each session will use. One that has not ended a turn is taken for one like the others."""
        if turns := [session.turn for session in sessions if session.turn is not None]:
            tokens, seconds = (sum(each) / len(turns) for each in zip(*turns, strict=True))
            use.turn = Turn(tokens, seconds)
        found = {}
        for session in sessions:
            own = session.turn or use.turn or Turn()
            turn = session.turn_left(own.tokens)
            used = tokens_of(session.unit.result) + session.used
            finish = max(turn, MARGIN * self._history.remaining(session.campaign, used))
            can_land = session.has_turns and session.conversation is not None
            rate = own.tokens / own.seconds if own.seconds > 0 else 0.0
            found[session.unit.id] = Outlook(turn=turn, finish=finish, rate=rate, can_land=can_land)
        return found

    def _set_hold(self, scope: str, use: ScopeUse, hold: StartCap | None, now: float) -> None:
        if hold is not None or use.hold is not None:
            self._governor.cap_starts(scope, hold, now=now)
            use.hold = hold

    def _ask(self, landing: Mapping[str, EndRequest], now: float) -> None:
        """Ask sessions to end at their turn, and withdraw requests whose reason is gone."""
        for unit_id, session in self._live.items():
            asked = session.unit.result.end_request_of(session.unit.attempt_id)
            is_to_land = unit_id in landing
            is_withdrawn = asked is not None and asked.is_landing and not is_to_land
            if session.ending is None and (is_withdrawn or (asked is None and is_to_land)):
                self._request(session, landing.get(unit_id))

    # -- requests ------------------------------------------------------------------------------

    def carry_out(self, command: Event, now: float) -> None:
        """Take the request of a command, `commands.end_at_turn`."""
        unit_id = str(command.fields["unit"])
        request = msgspec.convert({**command.fields, "attempt_id": command.fields["attempt"]}, EndRequest)
        holder = self._live.get(unit_id) or self._preparing.get(unit_id)
        if holder is not None and holder.unit.attempt_id == request.attempt_id:
            self._request(holder, request)
        # A unit that a person paused just as its attempt ended is held. Otherwise that end counts as usual.
        elif not (request.is_held and self._store.move_units([unit_id], "held", request.reason, now=now)):
            log.info("%s has no session that could be ended: %s", unit_id, request.reason)

    def _request(self, holder: Attempt, request: EndRequest | None) -> None:
        """Store the request with its event, then let the session end at its next turn; without one it continues."""
        reason = "it continues: its window holds more" if request is None else request.reason
        resume_at = None if request is None else request.resume_at
        unit = with_result(holder.unit, end_request=request)
        with self._journal.together():
            if not self._store.save_progress(unit.id, unit.fence, phase=None, result=unit.result):
                return  # it was cancelled
            self._journal.emit("unit.ending", unit=unit.id, reason=reason, resume_at=resume_at)
        if isinstance(holder, LiveSession):
            holder.ask_end(unit)
        else:
            holder.unit = unit


def _is_cold(session: LiveSession, now: float) -> bool:
    """Return whether it was resumed and has not paid for its conversation yet."""
    result, is_new = session.unit.result, now - (session.unit.started_at or now) < COLD_SECONDS
    was_parked = session.unit.conversation_id is not None and result.carried.is_parked
    is_large = (result.context_tokens or 0) >= LARGE_ENOUGH
    return was_parked and is_new and is_large and session.output.facts.requests is None
