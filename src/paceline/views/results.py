"""The results of a campaign: one row per unit, in plan order, with what it did and what it cost."""

from collections.abc import Iterator
from typing import Final

import msgspec

from paceline.agents.account import split_login
from paceline.core.unit_lifecycle import UnitState
from paceline.core.values.tokens import Tokens
from paceline.store import Cost, Store, Unit
from paceline.views.safe_text import printable
from paceline.views.units import iter_units

ALL: Final = 1 << 60


class ResultRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one unit did. `checks` is how often its check ran, `check_exit_code` how it ended the last time."""

    id: str
    state: UnitState
    agent: str | None
    model: str | None
    account: str | None
    host: str | None
    turns: int | None
    tokens: Tokens | None
    cost: Cost
    files_changed: int | None
    lines_added: int | None
    lines_removed: int | None
    branch: str | None
    commit: str | None
    checks: int
    check_exit_code: int | None
    tries: int
    attempts: int
    parks: int
    waited_seconds: float
    parked_seconds: float
    ran_seconds: float
    context_tokens: int | None
    lost_tokens: int
    lost_tokens_estimated: int
    exit_code: int | None
    reason: str | None


class ResultWithAnswer(ResultRow, frozen=True, kw_only=True):
    """A row with the final answer of the agent."""

    answer: str | None


def row_of_unit(unit: Unit) -> ResultRow:
    """Return the row of a unit."""
    result = unit.result
    account, host = split_login(unit.account or "")
    return ResultRow(
        id=unit.id,
        state=unit.state,
        agent=result.agent,
        model=result.model,
        account=account or None,
        host=host or result.host,
        turns=result.turns,
        tokens=result.tokens,
        cost=result.cost,
        files_changed=result.files_changed,
        lines_added=result.lines_added,
        lines_removed=result.lines_removed,
        branch=result.branch,
        commit=result.commit,
        checks=len(result.checks),
        check_exit_code=result.checks[-1].exit_code if result.checks else None,
        tries=unit.counters.attempts,
        attempts=unit.counters.failures,
        parks=unit.counters.parks,
        waited_seconds=result.waited_seconds,
        parked_seconds=result.parked_seconds,
        ran_seconds=result.ran_seconds,
        context_tokens=result.context_tokens,
        lost_tokens=result.lost_tokens,
        lost_tokens_estimated=result.lost_tokens_estimated,
        exit_code=unit.exit_code,
        reason=None if unit.reason is None else printable(unit.reason),
    )


def iter_results(store: Store, campaign: str, most: int = ALL) -> Iterator[ResultRow]:
    """Yield the rows of a campaign. One page of units is in memory at a time."""
    for unit in iter_units(store, campaign=campaign, most=most):
        yield row_of_unit(unit)


def iter_results_with_answers(store: Store, campaign: str) -> Iterator[ResultWithAnswer]:
    """Yield the same rows with answers, which are read one by one: lists of units come without them."""
    for unit in iter_units(store, campaign=campaign, most=ALL):
        whole = store.unit(unit.id)
        answer = None if whole is None or whole.result.answer is None else printable(whole.result.answer)
        yield ResultWithAnswer(**msgspec.structs.asdict(row_of_unit(unit)), answer=answer)
