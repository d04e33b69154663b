"""What an attempt adds to the result of its unit: tokens, cost, turns, times, the answer, and the price of its park.

A park costs the context that the first request after it pays again, because no cache has it any more.
Here: sums over attempts. Never here: what a CLI prints (`detect`), or what is stored when.
"""

import functools
import platform
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from paceline.agents.account import split_login
from paceline.core.unit_lifecycle import AttemptOutcome
from paceline.core.values.tokens import Tokens
from paceline.settings.model import PriceList
from paceline.store import Campaign, Cost, Unit, UnitResult
from paceline.store.unit_result import Carried

if TYPE_CHECKING:
    from paceline.engine.session.live_session import LiveSession

SHORTEST_CACHE_SECONDS = 300.0
"""After a shorter wait the provider's cache still has the context: five minutes is the usual lifetime."""
LONGEST_CACHE_SECONDS = 3600.0
"""After a longer wait no provider's cache has the context: an hour is the longest lifetime that one sells."""
LARGE_CONTEXT_TOKENS = 100_000
"""From this size on, starting over is cheaper than resuming: an agent that starts reads 20,000 to 50,000 tokens
before it works, and its workspace has what was done."""
RESTART_NOTE = (
    "An earlier session has worked on this task, and its conversation was given up. "
    "What it did is in this folder: look at it first, and continue from there."
)


def with_context(result: UnitResult, session: "LiveSession", *, is_kept: bool) -> UnitResult:
    """Return the result with the size of the conversation, and with what resuming it has cost.

    `is_kept` is whether the conversation can be continued.
    """
    before, requests = session.unit.result, session.output.facts.requests
    known = before.context_tokens if session.is_resumed else None
    context = known if requests is None else requests.context
    lost, estimated = _lost(session) if session.is_resumed and before.carried.is_parked else (0, 0)
    return msgspec.structs.replace(
        result,
        context_tokens=context if is_kept else None,
        lost_tokens=before.lost_tokens + lost + estimated,
        lost_tokens_estimated=before.lost_tokens_estimated + estimated,
    )


def _lost(session: "LiveSession") -> tuple[int, int]:
    """Return the tokens that this resume has paid again: those that were measured, and those that are estimated."""
    result, requests = session.unit.result, session.output.facts.requests
    context = result.context_tokens
    if requests is not None:
        paid = requests.uncached_first
        return (paid if context is None else min(paid, context)), 0
    waited = (session.unit.started_at or 0.0) - (result.carried.cached_at or 0.0)
    if context is None or not session.has_answered or waited < SHORTEST_CACHE_SECONDS:
        return 0, 0
    return 0, context


def starts_over(unit: Unit, campaign: Campaign, now: float) -> bool:
    """Return whether the unit gives up its conversation after its park, as its plan asks for."""
    result = unit.result
    if campaign.on_long_park != "restart" or unit.conversation_id is None or not result.carried.is_parked:
        return False
    if result.context_tokens is None or result.context_tokens < LARGE_CONTEXT_TOKENS:
        return False
    cached_at = result.carried.cached_at
    return cached_at is not None and now - cached_at > LONGEST_CACHE_SECONDS


def without_conversation(unit: Unit) -> Unit:
    """Return the unit as it starts over in its workspace."""
    carried = msgspec.structs.replace(unit.result.carried, conversation_tokens={}, is_parked=False, is_restarted=True)
    result = msgspec.structs.replace(unit.result, carried=carried, context_tokens=None)
    return msgspec.structs.replace(unit, conversation_id=None, result=result)


BILLED_MODES = ("api_key", "overage")
"""What agents print about sessions whose tokens are billed, whatever the account."""

TokensByModel = dict[str, Tokens]


def result_after(session: "LiveSession", outcome: AttemptOutcome, ended_at: float, prices: PriceList) -> UnitResult:
    """Return the result of the unit with what this attempt adds. All its output must have been read."""
    _, host = split_login(session.unit.account or "")
    before, reader = session.unit.result, session.output.facts
    spent, conversation = _spent(session)
    started_at = session.unit.started_at or ended_at
    waited = max(0.0, started_at - (before.carried.left_at or session.campaign.created_at or started_at))
    # The main model wrote the most: others are those of sub-agents and small tasks.
    main = max((name for name in spent if name), key=lambda name: spent[name].output, default=None)
    model = main or reader.model or session.campaign.model or before.model
    # Tokens that cost money by themselves are no part of a subscription.
    is_metered = session.account is not None and session.account.kind == "metered"
    worked = msgspec.structs.replace(
        before,
        agent=session.campaign.agent,
        model=model,
        host=host or this_host(),
        is_remote=bool(host),
        turns=before.turns if reader.model_turns is None else (before.turns or 0) + reader.model_turns,
        tokens=_total(before.tokens, spent),
        cost=cost_after(before, spent, prices, is_billed=is_metered or reader.auth_mode in BILLED_MODES),
        answer=reader.answer or before.answer,
        waited_seconds=before.waited_seconds + waited,
        parked_seconds=before.parked_seconds + (waited if before.carried.is_parked else 0.0),
        ran_seconds=before.ran_seconds + max(0.0, ended_at - started_at),
        end_request=None,
        carried=Carried(
            conversation_tokens=conversation,
            left_at=ended_at,
            is_parked=outcome.ending == "parked",
            is_restarted=session.is_conversation_gone or (before.carried.is_restarted and not session.has_answered),
            cached_at=ended_at if session.has_answered else before.carried.cached_at,
            warnings=outcome.warnings if session.is_conversation_gone else before.carried.warnings,
        ),
    )
    return with_context(worked, session, is_kept=outcome.ending != "failed" and session.conversation is not None)


@functools.cache
def this_host() -> str | None:
    """Return the name of this machine."""
    return platform.node() or None


def _spent(session: "LiveSession") -> tuple[TokensByModel, TokensByModel]:
    """Return the tokens of this attempt, and those of its conversation so far, by model.

    Some CLIs count the whole conversation. The attempts before, also those that were ended before they counted
    anything, are then in the number: what this attempt adds is the difference.
    """
    before = session.unit.result.carried.conversation_tokens if session.is_resumed else {}
    usage = session.output.facts.usage
    if usage is None:
        return {}, dict(before)
    unnamed = session.output.facts.model or session.campaign.model or ""
    counted: TokensByModel = {}
    for model, tokens in usage.by_model.items():
        name = model or unnamed
        counted[name] = counted.get(name, Tokens()).plus(tokens)
    if not usage.is_conversation:
        return counted, _added(before, counted)
    spent = {model: tokens.beyond(before.get(model, Tokens())) for model, tokens in counted.items()}
    return spent, _added(before, spent)


def _added(one: Mapping[str, Tokens], other: Mapping[str, Tokens]) -> TokensByModel:
    return {model: one.get(model, Tokens()).plus(other.get(model, Tokens())) for model in {**one, **other}}


def _total(before: Tokens | None, spent: TokensByModel) -> Tokens | None:
    total = before
    for tokens in spent.values():
        total = tokens if total is None else total.plus(tokens)
    return total


def cost_after(before: UnitResult, spent: TokensByModel, prices: PriceList, *, is_billed: bool) -> Cost:
    """Return the cost with that of this attempt. Once tokens had no price, the sum is unknown and stays so."""
    if not spent or not any(tokens.total for tokens in spent.values()):
        return before.cost
    had_no_price = before.tokens is not None and before.tokens.total and before.cost == Cost()
    dollars = None if had_no_price else prices.cost(spent)
    if dollars is None:
        return Cost()
    if is_billed:
        return msgspec.structs.replace(before.cost, billed=(before.cost.billed or 0.0) + dollars)
    return msgspec.structs.replace(before.cost, imputed=(before.cost.imputed or 0.0) + dollars)
