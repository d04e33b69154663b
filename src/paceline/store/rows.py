"""Conversion between rows of the schema and values of the interface. No statement is run here."""

import itertools
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from paceline.core.unit_lifecycle import Counters
from paceline.errors import InvalidInput, StoreDamaged
from paceline.events import Event
from paceline.redaction.stored_text import without_secrets
from paceline.store.interface import Campaign, OutcomeRecord, StoredSlot, Unit, UnitSpec
from paceline.store.rules import (
    COMMAND_EVENTS,
    is_slot_event,
    position_of,
    storable_result,
    storable_text,
    storable_value,
    told_result,
    told_text,
    told_texts,
    unit_id,
)
from paceline.store.unit_result import CheckRound, UnitResult

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


class _Texts(msgspec.Struct, frozen=True, omit_defaults=True):
    """The long texts of a result. `tails` are those of its checks."""

    answer: str | None = None
    feedback: str | None = None
    tails: tuple[str, ...] = ()


def unit_from(row: Row, campaign: str, prompt: str, result: UnitResult) -> Unit:
    """Return the unit of a row of `UNIT_FIELDS`."""
    key, name, cwd, output, state, *rest = row
    failures, attempts, parks, windows_spent, refusals, losses = rest[:6]
    resume_at, reason, account, conversation_id, attempt_id, fence, *times = rest[6:]
    lease_until, started_at, ended_at, exit_code, begun_at, is_parked, *last = times
    denials, warnings, phase, resume_cost = last
    return Unit(
        id=unit_id(campaign, name),
        campaign=campaign,
        spec=UnitSpec(id=name, prompt=prompt, cwd=cwd, output=output),
        position=position_of(key),
        state=state,
        counters=Counters(failures, attempts, parks, windows_spent, refusals, losses),
        resume_at=resume_at,
        reason=reason,
        account=account,
        conversation_id=conversation_id,
        attempt_id=attempt_id,
        fence=fence,
        lease_until=lease_until,
        started_at=started_at,
        ended_at=ended_at,
        exit_code=exit_code,
        begun_at=begun_at,
        is_parked=bool(is_parked),
        denials=denials,
        warnings=() if warnings is None else _WARNINGS.decode(warnings),
        phase=phase,
        result=result,
        resume_cost=resume_cost,
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


def is_stored_already(row: Row, record: OutcomeRecord) -> bool:
    """Return whether the row of fence, state and counters is what this record left: then it is a repetition."""
    transition = record.transition
    return row == (record.fence, transition.state, *msgspec.structs.astuple(transition.counters))


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
        event = replace(event, fields={name: _told_value(value) for name, value in event.fields.items()})
    try:
        return encode(event)
    except UnicodeEncodeError:
        return encode(storable_value(msgspec.to_builtins(event)))


def decode_event(encoded: bytes | str) -> Event | None:
    """Decode what `encode_event` returned; None if it is damaged."""
    return _decoded(_EVENTS, encoded)


def encode_slot(slot: StoredSlot) -> str:
    """Encode as JSON. Raise `InvalidInput` for text that is not Unicode: a slot is found by its text."""
    try:
        return encode(slot)
    except UnicodeEncodeError:
        raise InvalidInput(f"the slot {slot.id!r} has text that is not Unicode") from None


def decode_slot(encoded: bytes | str) -> StoredSlot | None:
    """Decode what `encode_slot` returned; None if it is damaged."""
    return _decoded(_SLOTS, encoded)


def _decoded(decoder: msgspec.json.Decoder[Decoded], encoded: bytes | str) -> Decoded | None:
    try:
        return decoder.decode(encoded)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _told_value(value: object) -> object:
    match value:
        case str():
            return without_secrets(value)
        case dict():
            return {name: _told_value(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_told_value(inner) for inner in value]
        case _:
            return value


_WARNINGS = msgspec.json.Decoder(tuple[str, ...])
_CAMPAIGNS = msgspec.json.Decoder(Campaign)
_RESULTS = msgspec.json.Decoder(UnitResult)
_CHECKS = msgspec.json.Decoder(tuple[CheckRound, ...])
_TEXTS = msgspec.json.Decoder(_Texts)
_EVENTS = msgspec.json.Decoder(Event)
_SLOTS = msgspec.json.Decoder(StoredSlot)
