"""Conversion between rows of the SQLite schema and values of the interface. No statement is run here."""

from typing import Any, Final

import msgspec

from paceline.core.unit_lifecycle import Counters
from paceline.errors import StoreDamaged
from paceline.store.interface import Campaign, OutcomeRecord, Unit, UnitSpec
from paceline.store.rules import position_of, storable_result, storable_text, storable_texts, unit_id
from paceline.store.unit_result import CheckRound, UnitResult

Row = tuple[Any, ...]

# Columns keep the names of version 1 of the schema: `attempts` are the failures, `tries` all attempts, `attempt` is the
# attempt's id, and `session_id` the id of the conversation.
UNIT_COLUMNS: Final = (
    "u.key, u.name, u.cwd, u.output, u.state,"
    " u.attempts, u.tries, u.parks, u.windows_spent, u.refusals, u.losses,"
    " u.resume_at, u.reason, u.account, u.session_id, u.attempt, u.fence,"
    " u.lease_until, u.started_at, u.ended_at, u.exit_code,"
    " u.begun_at, u.is_parked, u.denials, u.warnings, u.phase, u.resume_cost"
)
# As blobs: text that is not Unicode would raise in SQLite, and hide the units around it.
WHOLE_RESULT: Final = "CAST(r.body AS BLOB), CAST(r.checks AS BLOB), CAST(r.texts AS BLOB)"
BRIEF_RESULT: Final = "CAST(r.body AS BLOB), CAST(r.checks AS BLOB), NULL"
"""The result without its long texts."""
RESULT_COLUMNS: Final = 3


class _Texts(msgspec.Struct, frozen=True, omit_defaults=True):
    """The long texts of a result. `tails` are those of its checks."""

    answer: str | None = None
    feedback: str | None = None
    tails: tuple[str, ...] = ()


def unit_from(row: Row, campaign: str, prompt: str, result: UnitResult) -> Unit:
    """Return the unit of a row of `UNIT_COLUMNS`."""
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
        storable_text(transition.reason),
        record.account,
        record.account,
        storable_text(record.conversation_id),
        now,
        transition.exit_code,
        record.is_parked,
        record.denials,
        msgspec.json.encode(storable_texts(record.warnings)).decode() if record.warnings else None,
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
        return _result_columns(result)
    except UnicodeEncodeError:
        return _result_columns(storable_result(result))


def _result_columns(result: UnitResult) -> tuple[str, str | None, str | None]:
    if result.answer is None and result.feedback is None and not result.checks:
        return _encoded(result), None, None
    brief = result.without_texts()
    texts = _Texts(result.answer, result.feedback, tuple(check.tail for check in result.checks))
    body = _encoded(msgspec.structs.replace(brief, checks=()))
    return body, _encoded(brief.checks) if brief.checks else None, _encoded(texts)


def result_from(body: bytes, checks: bytes | None, texts: bytes | None) -> UnitResult | None:
    """Return the result of its columns, which may be without its texts; None if it is damaged."""
    try:
        brief = _RESULTS.decode(body)
        rounds = () if checks is None else _CHECKS.decode(checks)
        long = _Texts() if texts is None else _TEXTS.decode(texts)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    told = [msgspec.structs.replace(each, tail=tail) for each, tail in zip(rounds, long.tails, strict=False)]
    return msgspec.structs.replace(
        brief, checks=(*told, *rounds[len(told) :]), answer=long.answer, feedback=long.feedback
    )


def _encoded(value: object) -> str:
    return msgspec.json.encode(value).decode()


def campaign_from(name: str, body: bytes) -> Campaign:
    """Decode a stored campaign. Raise `StoreDamaged` if it cannot be read: its units would run in a wrong way."""
    try:
        return _CAMPAIGNS.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreDamaged(
            f"the settings of the campaign {name!r} in the store cannot be read ({error}): update Paceline if a newer "
            "one stored them, else restore a copy of the database"
        ) from error


_WARNINGS = msgspec.json.Decoder(tuple[str, ...])
_CAMPAIGNS = msgspec.json.Decoder(Campaign)
_RESULTS = msgspec.json.Decoder(UnitResult)
_CHECKS = msgspec.json.Decoder(tuple[CheckRound, ...])
_TEXTS = msgspec.json.Decoder(_Texts)
