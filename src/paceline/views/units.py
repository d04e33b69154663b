"""Units: their phase, their fields as the public contract names them, their details, and pages of them."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import msgspec

from paceline.agents.account import split_login
from paceline.core.unit_lifecycle import UnitState
from paceline.core.values.fields import fields_of
from paceline.core.values.session_output import Tokens
from paceline.errors import InvalidInput
from paceline.events import ATTEMPT_ENDS, ATTEMPT_STARTS, Event, is_campaign_wait
from paceline.store import Campaign, CheckRound, Cost, Page, Phase, Store, StoredEvent, Unit, UnitCounts
from paceline.views.safe_text import printable

if TYPE_CHECKING:
    from paceline.engine.session.live_session import LiveSession

UnitPhase = Literal["running", "quarantined", "unverified", "held", "parked", "waiting", "done", "cancelled"]
"""The states of units, with `todo` divided into `waiting` and `parked`. Those that need attention come first."""
UnitFilter = Literal["waiting", "parked", UnitState]
"""What units can be chosen by: a state, or one of the two phases of `todo`."""
UnitOrder = Literal["plan", "attention"]
"""The order of pages: that of the plans, or by state, with those that need attention first."""
PHASES: Final[tuple[UnitPhase, ...]] = get_args(UnitPhase)
ORDERED_STATES: Final[tuple[UnitState, ...]] = (
    "running",
    "quarantined",
    "unverified",
    "held",
    "todo",
    "done",
    "cancelled",
)
_PLACE_MARK: Final = "."
"""Between the state and the cursor in it, in the cursors of pages that are ordered by state."""
PAGE_UNITS: Final = 200
MOST_READS: Final = 50
MOST_EXAMINED: Final = 5_000
"""Reads and units for one page of waiting or parked units, which the store keeps together, or of a search.

The API reads them on the loop of the engine: a page is cut short rather than late."""
MOST_EXAMINED_ALONE: Final = 20_000
"""The same for `top`, which reads in a process of its own."""
MOST_EVENTS: Final = 200
ALL: Final = 1 << 60
READ_LIMIT: Final = 1000
"""Events or units that one read of the store returns at most."""


def phase_of(unit: Unit) -> UnitPhase:
    """Return the state, with `todo` divided into `waiting` and `parked`."""
    if unit.state != "todo":
        return unit.state
    return "parked" if unit.is_parked and unit.resume_at is not None else "waiting"


def stored_state(chosen: UnitFilter) -> UnitState:
    """Return the state that such units have in the store."""
    match chosen:
        case "waiting" | "parked":
            return "todo"
        case state:
            return state


def is_chosen(unit: Unit, chosen: UnitFilter | None) -> bool:
    """Return whether the unit is in this phase or state; None chooses every unit."""
    return chosen is None or chosen in (unit.state, phase_of(unit))


# -- one unit ----------------------------------------------------------------------------------------


class ListedUnit(msgspec.Struct, frozen=True, kw_only=True):
    """A unit of a report."""

    id: str
    state: UnitState
    reason: str | None
    ran_seconds: float
    cost: Cost
    branch: str | None


class UnitRow(ListedUnit, frozen=True, kw_only=True):
    """What every form of a unit has: what it did, and what that has used.

    `attempts` are those that count as failed, of `tries`. A unit on another host has that one from its start.
    """

    account: str | None
    host: str | None
    agent: str | None
    model: str | None
    attempts: int
    tries: int
    parks: int
    exit_code: int | None
    turns: int | None
    tokens: Tokens | None
    commit: str | None
    files_changed: int | None
    lines_added: int | None
    lines_removed: int | None
    waited_seconds: float
    parked_seconds: float
    """The part of `waited_seconds` that it waited for a quota window."""
    context_tokens: int | None
    """The size of its conversation, where the agent reports it."""
    lost_tokens: int
    """Context that was paid again after parks, with `lost_tokens_estimated` of it estimated."""
    lost_tokens_estimated: int


class ResultRow(UnitRow, frozen=True, kw_only=True):
    """What one unit did. `checks` is how often its check ran, `check_exit_code` how it ended the last time."""

    checks: int
    check_exit_code: int | None


class UnitView(UnitRow, frozen=True, kw_only=True):
    """A unit with the fields of the public contract."""

    campaign: str
    session_id: str | None
    started_at: float | None
    ended_at: float | None
    resume_at: float | None
    parked: bool
    """Whether `resume_at` is that of a quota window. A unit that backs off after a failure or a refusal is not."""
    denials: int
    warnings: tuple[str, ...]
    phase: Phase | None
    """What a running unit is at."""
    answer: str | None
    """The final answer of the agent. Lists leave it out, as well as the tails of checks."""
    workspace: str | None
    base: str | None
    checks: tuple[CheckRound, ...]


class UnitEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a unit."""

    id: int
    at: float
    name: str
    scope: str | None
    fields: dict[str, Any]


class UnitDetail(UnitView, frozen=True, kw_only=True):
    """A unit whole. `screen` is the end of what its last attempt showed; `history` has its events, oldest first."""

    prompt: str
    cwd: str
    output: str | None
    attempt: str | None
    screen: str
    history: list[UnitEvent]


def unit_row(unit: Unit) -> UnitRow:
    """Return the unit with what every form of it has."""
    return UnitRow(**_shown(UnitRow, unit))


def result_row(unit: Unit) -> ResultRow:
    checks = unit.result.checks
    last = {"checks": len(checks), "check_exit_code": checks[-1].exit_code if checks else None}
    return ResultRow(**_shown(ResultRow, unit) | last)


def unit_view(unit: Unit) -> UnitView:
    """Return the unit with the fields of the public contract."""
    checks = [(check, None if check.tail is None else printable(check.tail)) for check in unit.result.checks]
    changed = {
        "session_id": unit.conversation_id,
        "parked": phase_of(unit) == "parked",
        "warnings": tuple(printable(warning) for warning in unit.warnings),
        "answer": None if unit.result.answer is None else printable(unit.result.answer),
        "checks": tuple(msgspec.structs.replace(check, tail=tail) for check, tail in checks),
    }
    return UnitView(**_shown(UnitView, unit) | changed)


def _shown(kind: type[UnitRow], unit: Unit) -> dict[str, Any]:
    """Return what the unit and its result have under the names that people see."""
    account, host = split_login(unit.account or "")
    return fields_of(kind, unit.result, unit) | {
        "reason": None if unit.reason is None else printable(unit.reason),
        "account": account or None,
        "host": host or unit.result.host,
        "attempts": unit.counters.failures,
        "tries": unit.counters.attempts,
        "parks": unit.counters.parks,
    }


def unit_detail(unit: Unit, *, screen: str, history: Sequence[StoredEvent]) -> UnitDetail:
    """Return the unit whole. It must have been read by its id: units of a page come without their prompts."""
    return UnitDetail(
        **msgspec.structs.asdict(unit_view(unit)),
        prompt=unit.spec.prompt,
        cwd=unit.spec.cwd,
        output=unit.spec.output,
        attempt=unit.attempt_id,
        screen=screen,
        history=[UnitEvent(id=stored.id, **fields_of(UnitEvent, stored.event)) for stored in history],
    )


def unit_history(store: Store, unit_id: str) -> list[StoredEvent]:
    """Return the last events of a unit, oldest first."""
    last: deque[StoredEvent] = deque(maxlen=MOST_EVENTS)
    after = 0
    while events := store.events(after=after, unit=unit_id, limit=READ_LIMIT):
        last.extend(events)
        after = events[-1].id
        if len(events) < READ_LIMIT:
            break
    return list(last)


# -- the results of a campaign ----------------------------------------------------------------------


def iter_results(store: Store, campaign: str, most: int = ALL) -> Iterator[ResultRow]:
    """Yield the rows of a campaign in the order of the plan. One page of units is in memory at a time."""
    yield from map(result_row, iter_units(store, campaign=campaign, most=most))


def iter_results_with_answers(store: Store, campaign: str) -> Iterator[dict[str, object]]:
    """Yield the same rows as tables with answers, which are read one by one: lists of units come without them."""
    for row in iter_results(store, campaign):
        whole = store.unit(row.id)
        answer = None if whole is None or whole.result.answer is None else printable(whole.result.answer)
        yield {**msgspec.structs.asdict(row), "answer": answer}


# -- pages of units ----------------------------------------------------------------------------------


class UnitQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which units to list, and in which order. `search` is a part of their id, reason or account."""

    campaign: str | None = None
    chosen: UnitFilter | None = None
    search: str = ""
    order: UnitOrder = "plan"

    @property
    def states(self) -> tuple[UnitState | None, ...]:
        """The states in which the store is read, one after the other; None for all at once."""
        state = None if self.chosen is None else stored_state(self.chosen)
        return ORDERED_STATES if self.order == "attention" and state is None else (state,)

    def is_met_by(self, unit: Unit) -> bool:
        words, texts = self.search.casefold(), (unit.id, unit.reason, unit.account)
        return is_chosen(unit, self.chosen) and any(words in (text or "").casefold() for text in texts)

    def count(self, counts: Mapping[str, UnitCounts]) -> int | None:
        """Return how many there are, from the tallies of the store; None for a search, which they do not know."""
        if self.search:
            return None
        chosen = [each for name, each in counts.items() if self.campaign in (None, name)]
        return sum(count_in_phase(each, self.chosen) for each in chosen)


def read_units(
    store: Store, query: UnitQuery, *, limit: int, cursor: str | None = None, examined: int | None = None
) -> Page:
    """Return a page of units. It may be shorter than `limit`; there is more while it has a cursor.

    The store is read page by page, so that a rare text costs a bounded time for each page.
    """
    states = query.states
    place, cursor = _place_of(cursor, len(states)) if len(states) > 1 else (0, cursor)
    found: list[Unit] = []
    left = MOST_EXAMINED if examined is None else examined
    for _ in range(MOST_READS):
        page = store.units(campaign=query.campaign, state=states[place], limit=limit - len(found), cursor=cursor)
        found += filter(query.is_met_by, page.units)
        left -= len(page.units)
        cursor = page.cursor
        if cursor is None:
            place += 1
        if place == len(states):
            return Page(units=tuple(found))
        if len(found) >= limit or left <= 0:
            break
    return Page(units=tuple(found), cursor=f"{place}{_PLACE_MARK}{cursor or ''}" if len(states) > 1 else cursor)


def _place_of(cursor: str | None, states: int) -> tuple[int, str | None]:
    """Return the state at which a page begins, and the cursor in it."""
    if cursor is None:
        return 0, None
    place, mark, inner = cursor.partition(_PLACE_MARK)
    if not mark or len(place) != 1 or place not in "0123456789"[:states]:
        raise InvalidInput(f"{cursor!r:.60} is not a cursor: use the one that came with the page before")
    return int(place), inner or None


def iter_units(store: Store, *, campaign: str | None, chosen: UnitFilter | None = None, most: int) -> Iterator[Unit]:
    """Yield up to `most` units in plan order, without their prompts."""
    state = None if chosen is None else stored_state(chosen)
    cursor: str | None = None
    while most > 0:
        page = store.units(campaign=campaign, state=state, limit=min(most, READ_LIMIT), cursor=cursor)
        found = [unit for unit in page.units if is_chosen(unit, chosen)]
        yield from found
        most -= len(found)
        cursor = page.cursor
        if cursor is None:
            return


def count_in_phase(counts: UnitCounts, chosen: UnitFilter | None) -> int:
    """Return how many units of a campaign are in the phase or state; all of them for None."""
    match chosen:
        case None:
            return counts.total
        case "waiting":
            return counts.todo - counts.parked
        case _:
            return int(getattr(counts, chosen))


class PageStart(msgspec.Struct, frozen=True):
    """Where a page starts, and how many units come before it."""

    cursor: str | None = None
    before: int = 0


class CountedPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some units, how many there are in all (None if that is unknown), and where the next page starts."""

    units: tuple[Unit, ...]
    total: int | None
    following: PageStart | None


def read_counted_page(store: Store, query: UnitQuery, start: PageStart) -> CountedPage:
    """Return a page of units for `top`, which reads in a process of its own."""
    total = query.count(store.counts())
    limit = PAGE_UNITS if total is None else max(1, min(PAGE_UNITS, total - start.before))
    page = read_units(store, query, limit=limit, cursor=start.cursor, examined=MOST_EXAMINED_ALONE)
    before = start.before + len(page.units)
    is_last = page.cursor is None or (total is not None and before >= total)
    return CountedPage(units=page.units, total=total, following=None if is_last else PageStart(page.cursor, before))


# -- live sessions -----------------------------------------------------------------------------------


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """The session of a running unit. `ending` is the reason why it is being ended, if it is."""

    unit: str
    campaign: str
    attempt: str
    account: str | None
    host: str | None
    """The host that it runs on; null on the machine of the engine."""
    scope: str | None
    agent: str
    model: str | None
    session_id: str | None
    started_at: float | None
    tries: int
    pid: int | None
    ending: str | None


def session_view(session: "LiveSession") -> SessionView:
    """Return what people are shown of the session."""
    return msgspec.structs.replace(
        stored_session_view(session.unit, session.campaign),
        attempt=session.handle.attempt_id,
        account=session.account.name if session.account is not None else None,
        host=session.host or None,
        scope=session.scope,
        agent=session.profile.name,
        session_id=session.conversation,
        pid=session.handle.state().pid,
        ending=None if session.ending is None else printable(session.ending.reason),
    )


def stored_session_view(unit: Unit, campaign: Campaign) -> SessionView:
    """Return what the store knows of the session of a running unit."""
    account, host = split_login(unit.account or "")
    return SessionView(
        unit=unit.id,
        campaign=unit.campaign,
        attempt=unit.attempt_id or "",
        account=account or None,
        host=host or None,
        scope=None,
        agent=campaign.agent,
        model=campaign.model,
        session_id=unit.conversation_id,
        started_at=unit.started_at,
        tries=unit.counters.attempts,
        pid=None,
        ending=None,
    )


PAGE_EVENTS = 5_000
"""Events per read: a long history needs few reads."""
_WAITS_AGAIN = ("unit.parked", "unit.requeued", "unit.failed")
"""Ends of an attempt after which the unit waits for the next one."""


class UnitEvents:
    """Reads the events of a unit, each once. A wait of its campaign has no unit, so every kept event is read."""

    def __init__(self, store: Store, unit: Unit, campaign: Campaign) -> None:
        self._store = store
        self._unit_id = unit.id
        self._campaign = campaign
        self._after = 0
        self._last = ""
        self._is_waiting = True

    def take(self) -> Iterator[StoredEvent]:
        """Yield the events since the last call."""
        while page := self._store.events(after=self._after, limit=PAGE_EVENTS):
            for stored in page:
                self._after = stored.id
                if self._concerns(stored.event):
                    yield stored

    def _concerns(self, event: Event) -> bool:
        if event.unit == self._unit_id:
            if event.name in ATTEMPT_STARTS | ATTEMPT_ENDS:
                self._last, self._is_waiting = event.name, event.name in _WAITS_AGAIN
            return True
        if event.fields.get("action") == "retry" and event.fields.get("target") in (self._unit_id, self._campaign.name):
            self._is_waiting = self._last not in ("unit.done", *ATTEMPT_STARTS)
        is_own = is_campaign_wait(event) and event.fields["campaign"] == self._campaign.name
        return is_own and self._is_waiting and event.at >= self._campaign.created_at
