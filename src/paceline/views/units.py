"""Units: their phase, their fields as the public contract names them, their details, and pages of them."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, get_args

import msgspec

from paceline.agents.account import split_login
from paceline.core.unit_lifecycle import UnitState
from paceline.core.values.tokens import Tokens
from paceline.errors import InvalidInput
from paceline.store import CheckRound, Cost, Page, Phase, Store, StoredEvent, Unit, UnitCounts, UnitResult
from paceline.views.safe_text import printable
from paceline.views.status import total_units

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
MOST_EXAMINED_ORDERED: Final = 20_000
"""The same for `top`, which reads in a process of its own."""
MOST_EVENTS: Final = 200
READ_LIMIT: Final = 1000
"""Events or units that one read of the store returns at most."""


_INTERNAL: Final = {
    "is_remote",
    "repository",
    "feedback",
    "carried",
    "port_base",
    "session_end",
    "deliveries",
    "end_request",
}
_WORK_FIELDS: Final = frozenset(UnitResult.__struct_fields__) - _INTERNAL
"""The fields of a result that people see under the same names."""


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


class UnitView(msgspec.Struct, frozen=True, kw_only=True):
    """A unit with the fields of the public contract."""

    id: str
    campaign: str
    state: UnitState
    attempts: int
    tries: int
    parks: int
    resume_at: float | None
    reason: str | None
    account: str | None
    session_id: str | None
    started_at: float | None
    ended_at: float | None
    exit_code: int | None
    parked: bool
    """Whether `resume_at` is that of a quota window. A unit that backs off after a failure or a refusal is not."""
    denials: int
    warnings: tuple[str, ...]
    phase: Phase | None
    """What a running unit is at."""
    agent: str | None
    model: str | None
    host: str | None
    turns: int | None
    tokens: Tokens | None
    cost: Cost
    answer: str | None
    """The final answer of the agent. Lists leave it out, as well as the tails of checks."""
    workspace: str | None
    branch: str | None
    base: str | None
    commit: str | None
    files_changed: int | None
    lines_added: int | None
    lines_removed: int | None
    checks: tuple[CheckRound, ...]
    waited_seconds: float
    parked_seconds: float
    """The part of `waited_seconds` that it waited for a quota window."""
    ran_seconds: float
    context_tokens: int | None
    """The size of its conversation, where the agent reports it."""
    lost_tokens: int
    """Context that was paid again after parks, with `lost_tokens_estimated` of it estimated."""
    lost_tokens_estimated: int


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


def unit_view(unit: Unit) -> UnitView:
    """Return the unit with the fields of the public contract. A unit on another host has that one from its start."""
    account, host = split_login(unit.account or "")
    return UnitView(
        id=unit.id,
        campaign=unit.campaign,
        state=unit.state,
        attempts=unit.counters.failures,
        tries=unit.counters.attempts,
        parks=unit.counters.parks,
        resume_at=unit.resume_at,
        reason=None if unit.reason is None else printable(unit.reason),
        account=account or None,
        session_id=unit.conversation_id,
        started_at=unit.started_at,
        ended_at=unit.ended_at,
        exit_code=unit.exit_code,
        parked=phase_of(unit) == "parked",
        denials=unit.denials,
        warnings=tuple(printable(warning) for warning in unit.warnings),
        phase=unit.phase,
        **_work(unit.result) | {"host": host or unit.result.host},
    )


def _work(result: UnitResult) -> dict[str, Any]:
    """Return the fields of a result that people see."""
    checks = (msgspec.structs.replace(check, tail=printable(check.tail)) for check in result.checks)
    shown = {name: getattr(result, name) for name in _WORK_FIELDS}
    return shown | {"answer": None if result.answer is None else printable(result.answer), "checks": tuple(checks)}


def unit_detail(unit: Unit, *, screen: str, history: Sequence[StoredEvent]) -> UnitDetail:
    """Return the unit whole. It must have been read by its id: units of a page come without their prompts."""
    return UnitDetail(
        **msgspec.structs.asdict(unit_view(unit)),
        prompt=unit.spec.prompt,
        cwd=unit.spec.cwd,
        output=unit.spec.output,
        attempt=unit.attempt_id,
        screen=screen,
        history=[_unit_event(stored) for stored in history],
    )


def _unit_event(stored: StoredEvent) -> UnitEvent:
    event = stored.event
    return UnitEvent(id=stored.id, at=event.at, name=event.name, scope=event.scope, fields=event.fields)


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
        return is_chosen(unit, self.chosen) and _contains(unit, self.search.casefold())


def read_units(store: Store, query: UnitQuery, *, limit: int, cursor: str | None = None) -> Page:
    """Return a page of units. It may be shorter than `limit`; there is more while it has a cursor.

    The store is read page by page, so that a rare text costs a bounded time for each page.
    """
    states = query.states
    place, cursor = _place_of(cursor, len(states)) if len(states) > 1 else (0, cursor)
    found: list[Unit] = []
    examined = 0
    for _ in range(MOST_READS):
        page = store.units(campaign=query.campaign, state=states[place], limit=limit - len(found), cursor=cursor)
        found += filter(query.is_met_by, page.units)
        examined += len(page.units)
        cursor = page.cursor
        if cursor is None:
            place += 1
        if place == len(states):
            return Page(units=tuple(found))
        if len(found) >= limit or examined >= MOST_EXAMINED:
            break
    return Page(units=tuple(found), cursor=f"{place}{_PLACE_MARK}{cursor or ''}" if len(states) > 1 else cursor)


def _contains(unit: Unit, words: str) -> bool:
    """Return whether the id, the reason or the account of the unit contains the text, in any case of letters."""
    return not words or any(words in (text or "").casefold() for text in (unit.id, unit.reason, unit.account))


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


class UnitChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which units to show; None for any."""

    campaign: str | None = None
    phase: UnitPhase | None = None
    search: str = ""
    """A part of their id, reason or account."""

    @property
    def states(self) -> tuple[UnitState, ...]:
        """The states in which the store has such units, in the order in which they are shown."""
        return ORDERED_STATES if self.phase is None else (stored_state(self.phase),)

    def is_met_by(self, unit: Unit) -> bool:
        return is_chosen(unit, self.phase) and _contains(unit, self.search.casefold())

    def count(self, counts: Mapping[str, UnitCounts]) -> int | None:
        """Return how many there are, from the tallies of the store; None for a search, which they do not know."""
        if self.search:
            return None
        chosen = [each for name, each in counts.items() if self.campaign in (None, name)]
        return sum(count_in_phase(each, self.phase) for each in chosen)


def count_in_phase(counts: UnitCounts, phase: UnitPhase | None) -> int:
    """Return how many units of a campaign are in the phase; all of them for None."""
    match phase:
        case None:
            return total_units(counts)
        case "waiting":
            return counts.todo - counts.parked
        case _:
            return int(getattr(counts, phase))


class PageStart(msgspec.Struct, frozen=True):
    """Where a page starts: the state, the cursor in it, and how many units come before the page."""

    state_index: int = 0
    cursor: str | None = None
    before: int = 0


class OrderedPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some units, how many there are in all (None if that is unknown), and where the next page starts."""

    units: tuple[Unit, ...]
    total: int | None
    following: PageStart | None


def read_ordered_page(store: Store, choice: UnitChoice, start: PageStart) -> OrderedPage:
    """Return a page of units, those that need attention first.

    The order is that of `ORDERED_STATES`, then that of the plan. Every state is read through the store's index of
    states, so that a page costs the same among a million units.
    """
    total = choice.count(store.counts())
    wanted = PAGE_UNITS if total is None else min(PAGE_UNITS, total - start.before)
    found: list[Unit] = []
    here: PageStart | None = start
    examined = 0
    while here is not None and len(found) < wanted and examined < MOST_EXAMINED_ORDERED:
        state = choice.states[here.state_index]
        page = store.units(campaign=choice.campaign, state=state, limit=PAGE_UNITS, cursor=here.cursor)
        found += filter(choice.is_met_by, page.units)
        examined += len(page.units)
        here = _page_after(here, page.cursor, len(choice.states), start.before + len(found))
    is_last = here is None or (total is not None and here.before >= total)
    return OrderedPage(units=tuple(found), total=total, following=None if is_last else here)


def _page_after(start: PageStart, cursor: str | None, states: int, before: int) -> PageStart | None:
    if cursor is not None:
        return PageStart(start.state_index, cursor, before)
    return PageStart(start.state_index + 1, None, before) if start.state_index + 1 < states else None
