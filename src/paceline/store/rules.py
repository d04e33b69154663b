"""What every implementation agrees on: names, keys, order, what is refused. Never anything about storage."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, get_args

import msgspec

from paceline.core.unit_lifecycle import UnitState, next_state
from paceline.errors import InvalidInput, UnknownName
from paceline.events import Event
from paceline.store.interface import Campaign, OutcomeRecord, StoredSlot, Unit, UnitCounts, UnitSpec

POSITION_BITS: Final = 40

UnitPhase = Literal["todo", "parked", "running", "done", "quarantined", "held", "cancelled"]


UNIT_PHASES: Final[tuple[UnitPhase, ...]] = get_args(UnitPhase)


def unit_id(campaign: str, name: str) -> str:
    """`campaign/unit`. The unit's own name may hold slashes, so the campaign's may not."""
    return f"{campaign}/{name}"


def split_unit_id(identifier: str) -> tuple[str, str]:
    """The campaign and the unit's own name."""
    campaign, _, name = identifier.partition("/")
    return campaign, name


def unit_key(campaign_number: int, position: int) -> int:
    """One integer that sorts units as people see them: by campaign in order of adding, then in plan order."""
    return campaign_number << POSITION_BITS | position


def position_of(key: int) -> int:
    """The place in the plan, from a unit's key."""
    return key & ((1 << POSITION_BITS) - 1)


def number_of(key: int) -> int:
    """The campaign's number, from a unit's key."""
    return key >> POSITION_BITS


def phase_of(state: UnitState, resume_at: float | None) -> UnitPhase:
    """The state, with parked told apart from what may be claimed."""
    return "parked" if state == "todo" and resume_at is not None else state


def unit_counts(tally: Mapping[str, int]) -> UnitCounts:
    """What people see of a tally by phase: parked units are among the todo."""
    counts = {phase: tally.get(phase, 0) for phase in UNIT_PHASES}
    counts["todo"] += counts["parked"]
    return UnitCounts(**counts)


def claimed(unit: Unit, account: str, attempt_id: str, lease_until: float, now: float) -> Unit:
    """A todo unit after a claim: running, one try more, with nothing left of how the last one ended."""
    counters = unit.counters
    return msgspec.structs.replace(
        unit,
        state="running",
        counters=msgspec.structs.replace(counters, tries=counters.tries + 1),
        fence=unit.fence + 1,
        account=account,
        attempt_id=attempt_id,
        lease_until=lease_until,
        started_at=now,
        reason=None,
        ended_at=None,
        exit_code=None,
    )


def key_after(cursor: str | None) -> int:
    """Where a page begins: after this key."""
    if cursor is None:
        return -1
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise InvalidInput(f"{cursor!r} is no cursor: use the one that came with the page before")
    return int(cursor)


def check_limit(limit: int) -> None:
    """A page has at least one entry."""
    if limit < 1:
        raise InvalidInput(f"a limit of {limit} gives no page: use 1 or more")


def check_attempt_ids(limit: int, attempts: int) -> None:
    """Every claimed unit needs a folder of its own."""
    if not 0 <= limit <= attempts:
        raise InvalidInput(f"{limit} units cannot be claimed with the names of {attempts} attempts")


def check_campaign(campaign: Campaign) -> None:
    """Its name can be one, and all of it can be stored."""
    if not campaign.name or "/" in campaign.name:
        raise InvalidInput(f"{campaign.name!r} cannot name a campaign: it must be without a slash, and not empty")
    try:
        msgspec.json.encode(campaign)
    except UnicodeEncodeError:
        raise InvalidInput(f"the campaign {campaign.name!r} has text that is not Unicode") from None


def checked_specs(specs: Iterable[UnitSpec]) -> Iterable[UnitSpec]:
    """The same, one by one; raises at the first that cannot be stored."""
    seen: set[str] = set()
    for spec in specs:
        if not spec.id:
            raise InvalidInput("a unit needs an id that is not empty")
        if spec.id in seen:
            raise InvalidInput(f"the unit {spec.id!r} is named twice")
        seen.add(spec.id)
        for text in (spec.id, spec.prompt, spec.cwd, spec.output or ""):
            if not is_unicode(text):
                raise InvalidInput(f"the unit {spec.id!r} has text that is not Unicode")
        yield spec


def check_outcomes(records: Iterable[OutcomeRecord]) -> None:
    """Each is a step that a running unit can take; `IllegalStep` otherwise."""
    for each in records:
        if next_state("running", each.transition.step) != each.transition.state:
            raise InvalidInput(f"{each.transition.step} does not make {each.unit_id} {each.transition.state}")


def unknown_campaign(name: str, known: Iterable[str]) -> UnknownName:
    """The error that says what there is."""
    names = ", ".join(sorted(known)) or "none yet"
    return UnknownName(f"there is no campaign {name!r}; there are: {names}")


def is_unicode(text: str) -> bool:
    """Whether it can be written as UTF-8; halves of surrogate pairs cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def storable_text(text: str | None) -> str | None:
    """Text from an agent may hold half a character; a try's end is stored all the same."""
    return text if text is None or is_unicode(text) else text.encode(errors="replace").decode()


def encode_event(event: Event) -> bytes:
    """As JSON: what comes back has lists for tuples, and nothing that another process could still change."""
    try:
        return msgspec.json.encode(event)
    except UnicodeEncodeError:
        return msgspec.json.encode(_storable_value(msgspec.to_builtins(event)))


def decode_event(encoded: bytes) -> Event:
    """What `encode_event` wrote."""
    return _EVENTS.decode(encoded)


def encode_slot(slot: StoredSlot) -> bytes:
    """As JSON; refused if it holds half a character, for a slot is found again by its text."""
    try:
        return msgspec.json.encode(slot)
    except UnicodeEncodeError:
        raise InvalidInput(f"the slot {slot.id!r} has text that is not Unicode") from None


def decode_slot(encoded: bytes) -> StoredSlot:
    """What `encode_slot` wrote."""
    return _SLOTS.decode(encoded)


def _storable_value(value: object) -> object:
    match value:
        case str():
            return storable_text(value)
        case dict():
            return {storable_text(name): _storable_value(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_storable_value(inner) for inner in value]
        case _:
            return value


_EVENTS = msgspec.json.Decoder(Event)
_SLOTS = msgspec.json.Decoder(StoredSlot)
