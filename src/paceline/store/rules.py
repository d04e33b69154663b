"""What both databases share: ids, keys, order, which values are refused, and the conversion between rows and values.

Never here: a statement.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from paceline.core.unit_lifecycle import Counters, next_state
from paceline.errors import InvalidInput, StoreDamaged
from paceline.events import Event, is_campaign_wait
from paceline.redaction import without_secrets
from paceline.store.interface import Campaign, OutcomeRecord, StoredSlot, Unit, UnitCounts, UnitSpec
from paceline.store.spend import ClientKey, SpendRow
from paceline.store.unit_result import CheckRound, UnitResult

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
    counts = {phase: tally.get(phase, 0) for phase in UnitCounts.__struct_fields__}
    counts["todo"] += counts["parked"] + tally.get("backing_off", 0)
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
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def storable_text(text: str | None) -> str | None:
    """Replace what UTF-8 cannot encode: an agent may print half a character, and its outcome must be stored."""
    return text if text is None or text.isascii() else text.encode(errors="replace").decode()


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
    return _with_texts(value, storable_text)


def _with_texts(value: object, change: Callable[[str], object]) -> object:
    """Return plain values with all their texts changed, and with what UTF-8 cannot encode replaced in their names."""
    match value:
        case str():
            return change(value)
        case dict():
            return {storable_text(name): _with_texts(inner, change) for name, inner in value.items()}
        case list() | tuple():
            return [_with_texts(inner, change) for inner in value]
        case _:
            return value


Row = tuple[Any, ...]
Decoded = TypeVar("Decoded")

UNIT_FIELDS: Final = (
    *("key", "name", "cwd", "output", "state"),
    *("failures", "attempts", "parks", "windows_spent", "refusals", "losses"),
    *("resume_at", "reason", "account", "conversation_id", "attempt_id", "fence"),
    *("lease_until", "started_at", "ended_at", "exit_code"),
    *("begun_at", "is_parked", "denials", "warnings", "phase", "resume_cost"),
)
"""The columns of a unit, as they are read."""
_FIRST_OTHER: Final = UNIT_FIELDS.index("resume_at")
_OTHER_FIELDS: Final = UNIT_FIELDS[_FIRST_OTHER:]
"""Those that a `Unit` has under the same names."""


class _Texts(msgspec.Struct, frozen=True, omit_defaults=True):
    """The long texts of a result. `tails` are those of its checks."""

    answer: str | None = None
    feedback: str | None = None
    tails: tuple[str, ...] = ()


def unit_from(row: Row, campaign: str, prompt: str, result: UnitResult) -> Unit:
    """Return the unit of a row of `UNIT_FIELDS`."""
    key, name, cwd, output, state = row[:5]
    others = dict(zip(_OTHER_FIELDS, row[_FIRST_OTHER:], strict=True))
    warnings = others["warnings"]
    others["warnings"] = () if warnings is None else _WARNINGS.decode(warnings)
    others["is_parked"] = bool(others["is_parked"])
    return Unit(
        id=unit_id(campaign, name),
        campaign=campaign,
        spec=UnitSpec(id=name, prompt=prompt, cwd=cwd, output=output),
        position=position_of(key),
        state=state,
        counters=Counters(*row[5:_FIRST_OTHER]),
        result=result,
        **others,
    )


def outcome_row(record: OutcomeRecord, address: tuple[int | str | None, str], now: float) -> Row:
    """Return the parameters of the statement that records an outcome."""
    transition = record.transition
    return (
        transition.state,
        *msgspec.structs.astuple(transition.counters),
        transition.resume_at if transition.state == "todo" else None,
        told_text(transition.reason),
        record.account,
        record.account,
        storable_text(record.conversation_id),
        now,
        transition.exit_code,
        record.is_parked,
        record.denials,
        encode(told_texts(record.warnings)) if record.warnings else None,
        record.resume_cost,
        *address,
        record.fence,
    )


def result_row(result: UnitResult) -> tuple[str, str | None, str | None]:
    """Return the columns of a result: its short values, its checks, and its long texts."""
    try:
        return _result_columns(told_result(result))
    except UnicodeEncodeError:
        return _result_columns(storable_result(result))


def _result_columns(result: UnitResult) -> tuple[str, str | None, str | None]:
    if result.answer is None and result.feedback is None and not result.checks:
        return encode(result), None, None
    brief = result.without_texts()
    texts = _Texts(result.answer, result.feedback, tuple(check.tail or "" for check in result.checks))
    body = encode(msgspec.structs.replace(brief, checks=()))
    return body, encode(brief.checks) if brief.checks else None, encode(texts)


def result_from(body: bytes | str, checks: bytes | str | None, texts: bytes | str | None) -> UnitResult | None:
    """Return the result of its columns, which may be without its texts; None if it is damaged."""
    try:
        brief = _RESULTS.decode(body)
        rounds = () if checks is None else _CHECKS.decode(checks)
        long = _Texts() if texts is None else _TEXTS.decode(texts)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    tails = itertools.chain(long.tails, itertools.repeat(None))
    told = tuple(msgspec.structs.replace(each, tail=tail) for each, tail in zip(rounds, tails, strict=False))
    return msgspec.structs.replace(brief, checks=told, answer=long.answer, feedback=long.feedback)


def encode(value: object) -> str:
    """Encode as JSON."""
    return msgspec.json.encode(value).decode()


def campaign_from(name: str, body: bytes | str) -> Campaign:
    """Decode a stored campaign. Raise `StoreDamaged` if it cannot be read: its units would run in a wrong way."""
    try:
        return _CAMPAIGNS.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreDamaged(
            f"the settings of the campaign {name!r} in the store cannot be read ({error}): update Paceline if a newer "
            "one stored them, else restore a copy of the database"
        ) from error


def encode_event(event: Event) -> str:
    """Encode as JSON, without the secrets that agents have printed. Decoding returns lists in place of tuples.

    Commands and slots have no words of an agent: a person or a program named what is in them.
    """
    if event.fields and not (event.name.startswith(COMMAND_EVENTS) or is_slot_event(event)):
        event = replace(
            event, fields={name: _with_texts(value, without_secrets) for name, value in event.fields.items()}
        )
    try:
        return encode(event)
    except UnicodeEncodeError:
        return encode(storable_value(msgspec.to_builtins(event)))


def encode_slot(slot: StoredSlot) -> str:
    """Encode as JSON. Raise `InvalidInput` for text that is not Unicode: a slot is found by its text."""
    try:
        return encode(slot)
    except UnicodeEncodeError:
        raise InvalidInput(f"the slot {slot.id!r} has text that is not Unicode") from None


def decoded(decoder: msgspec.json.Decoder[Decoded], encoded: bytes | str) -> Decoded | None:
    """Decode what was stored as JSON; None if it is damaged."""
    try:
        return decoder.decode(encoded)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


_WARNINGS = msgspec.json.Decoder(tuple[str, ...])
_CAMPAIGNS = msgspec.json.Decoder(Campaign)
_RESULTS = msgspec.json.Decoder(UnitResult)
_CHECKS = msgspec.json.Decoder(tuple[CheckRound, ...])
_TEXTS = msgspec.json.Decoder(_Texts)
EVENTS = msgspec.json.Decoder(Event)
SLOTS = msgspec.json.Decoder(StoredSlot)
CLIENT_KEYS = msgspec.json.Decoder(ClientKey)
