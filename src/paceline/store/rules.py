"""Rules that every implementation shares: ids, keys, order, and which values are refused.

Never here: anything about storage.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, get_args

import msgspec
from msgspec.structs import replace

from paceline.core.unit_lifecycle import next_state
from paceline.errors import InvalidInput
from paceline.events import Event, is_campaign_wait
from paceline.redaction.stored_text import without_secrets
from paceline.store.interface import Campaign, OutcomeRecord, Unit, UnitCounts, UnitSpec
from paceline.store.spend import SpendRow
from paceline.store.unit_result import UnitResult

ACCEPTED: Final = "accepted by a person; its check did not pass"
"""The reason of a unit that was unverified and was taken as done."""

STOPPED_STATES: Final = ("held", "quarantined", "unverified")
"""States of units that wait for a person."""

POSITION_BITS: Final = 40
"""Splits a 63-bit key: 2^40 units in each campaign, and 2^23 campaigns."""

Span = tuple[int, int]
"""The first and the last key, both included."""
ALL_KEYS: Final[Span] = (0, (1 << 63) - 1)

COMMAND_EVENTS: Final = ("control.", "key.")
"""How the names of commands to an engine begin. A new key brings limits that an engine applies."""
SLOT_EVENTS: Final = ("slot.", "control.slot_")
"""How the names of events about one slot of a program begin."""

TallyPhase = Literal[
    "todo", "parked", "backing_off", "running", "done", "unverified", "quarantined", "held", "cancelled"
]
"""The phase that a unit is counted in: its state, with those apart that may not be claimed before their time."""

TALLY_PHASES: Final[tuple[TallyPhase, ...]] = get_args(TallyPhase)


def unit_id(campaign: str, name: str) -> str:
    """Return `campaign/unit`. The unit's own name may contain slashes, so a campaign's name may not."""
    return f"{campaign}/{name}"


def split_unit_id(identifier: str) -> tuple[str, str]:
    """Return the campaign and the unit's own name."""
    campaign, _, name = identifier.partition("/")
    return campaign, name


def unit_key(campaign_number: int, position: int) -> int:
    """Return an integer that sorts units by campaign as they were added, then in plan order."""
    return campaign_number << POSITION_BITS | position


def campaign_span(number: int) -> Span:
    """Return all keys that units of the campaign can have."""
    return unit_key(number, 0), unit_key(number + 1, 0) - 1


def position_of(key: int) -> int:
    """Return the position in the plan from a unit's key."""
    return key & ((1 << POSITION_BITS) - 1)


def unit_counts(tally: Mapping[str, int]) -> UnitCounts:
    """Return the counts from a tally by phase. Units that are parked or back off are also counted as `todo`."""
    counts = {phase: tally.get(phase, 0) for phase in TALLY_PHASES}
    counts["todo"] += counts["parked"] + counts.pop("backing_off")
    return UnitCounts(**counts)


def claimed(unit: Unit, account: str, attempt_id: str, lease_until: float, now: float) -> Unit:
    """Return the unit as it is after a claim: running, one attempt more, without the end of the last attempt."""
    counters = unit.counters
    return msgspec.structs.replace(
        unit,
        state="running",
        counters=msgspec.structs.replace(counters, attempts=counters.attempts + 1),
        fence=unit.fence + 1,
        account=account,
        attempt_id=attempt_id,
        lease_until=lease_until,
        started_at=now,
        reason=None,
        ended_at=None,
        exit_code=None,
        begun_at=now if unit.conversation_id is None else unit.begun_at or unit.started_at,
        is_parked=False,
        denials=0,
        warnings=(),
        phase="working",
    )


def key_after(cursor: str | None) -> int:
    """Return the key after which a page begins."""
    if cursor is None:
        return -1
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise InvalidInput(f"{cursor!r} is not a cursor: use the one that came with the page before")
    return int(cursor)


def check_page_size(limit: int) -> None:
    """Raise `InvalidInput` unless a page has room for an entry."""
    if limit < 1:
        raise InvalidInput(f"a limit of {limit} is too small: use 1 or more")


def check_attempt_ids(limit: int, attempts: int) -> None:
    """Raise `InvalidInput` unless every claimed unit gets an attempt id of its own."""
    if not 0 <= limit <= attempts:
        raise InvalidInput(f"{limit} units cannot be claimed with {attempts} attempt ids")


def check_campaign(campaign: Campaign) -> None:
    """Raise `InvalidInput` if the campaign's name is not valid or its text cannot be stored."""
    if not campaign.name or "/" in campaign.name:
        raise InvalidInput(f"{campaign.name!r} cannot name a campaign: use a name without a slash that is not empty")
    try:
        msgspec.json.encode(campaign)
    except UnicodeEncodeError:
        raise InvalidInput(f"the campaign {campaign.name!r} has text that is not Unicode") from None


def checked_specs(specs: Iterable[UnitSpec]) -> Iterable[UnitSpec]:
    """Yield the same units one by one. Raise `InvalidInput` at the first that cannot be stored."""
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
    """Raise `IllegalStep` unless a running unit can take every step."""
    for each in records:
        if next_state("running", each.transition.step) != each.transition.state:
            raise InvalidInput(f"{each.transition.step} does not make {each.unit_id} {each.transition.state}")


def is_unicode(text: str) -> bool:
    """Return whether the text can be encoded as UTF-8. Lone surrogates cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def storable_text(text: str | None) -> str | None:
    """Replace what UTF-8 cannot encode: an agent may print half a character, and its outcome must be stored."""
    if text is None or text.isascii() or is_unicode(text):
        return text
    return text.encode(errors="replace").decode()


def storable_spend(row: SpendRow) -> SpendRow:
    """Return the row with what UTF-8 cannot encode replaced in its names: clients choose those of models."""
    day, key, account, model = (storable_text(text) or "" for text in (row.day, row.key, row.account, row.model))
    return msgspec.structs.replace(row, day=day, key=key, account=account, model=model)


def told_text(text: str | None) -> str | None:
    """Return words of an agent or a program as they may be stored: without secrets, which they may have printed."""
    return None if text is None else storable_text(without_secrets(text))


def told_texts(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the texts as they may be stored."""
    return tuple(told_text(text) or "" for text in texts)


def told_result(result: UnitResult) -> UnitResult:
    """Return the result without secrets in what the agent and the checks have printed."""
    end, request = result.session_end, result.end_request
    return replace(
        result,
        answer=told_text(result.answer),
        feedback=told_text(result.feedback),
        checks=tuple(replace(each, tail=told_text(each.tail), reason=told_text(each.reason)) for each in result.checks),
        session_end=None if end is None else replace(end, warnings=told_texts(end.warnings)),
        end_request=None if request is None else replace(request, reason=told_text(request.reason) or ""),
    )


def storable_result(result: UnitResult) -> UnitResult:
    """Return the result as it may be stored: without secrets, and with what UTF-8 cannot encode replaced."""
    result = told_result(result)
    try:
        msgspec.json.encode(result)
    except UnicodeEncodeError:
        return msgspec.convert(storable_value(msgspec.to_builtins(result)), UnitResult)
    return result


def is_slot_event(event: Event) -> bool:
    """Return whether the event is about one slot of a program: there may be a hundred of them in a second."""
    return event.name.startswith(SLOT_EVENTS) and not is_campaign_wait(event)


def storable_value(value: object) -> object:
    """Return plain values with what UTF-8 cannot encode replaced in all their texts."""
    match value:
        case str():
            return storable_text(value)
        case dict():
            return {storable_text(name): storable_value(inner) for name, inner in value.items()}
        case list() | tuple():
            return [storable_value(inner) for inner in value]
        case _:
            return value
