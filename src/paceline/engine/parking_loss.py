"""The price of a park: the context that the first request after it pays again, because no cache has it any more.

Here: numbers of one unit. Never here: who is parked, or when (`landing.py`).
"""

from typing import TYPE_CHECKING

import msgspec

from paceline.store import Campaign, Unit, UnitResult

if TYPE_CHECKING:
    from paceline.engine.session import LiveSession

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
    is_resumed = session.unit.conversation_id is not None and session.profile.can_resume
    known = before.context_tokens if is_resumed else None
    context = known if requests is None else requests.context
    lost, estimated = _lost(session) if is_resumed and before.carried.is_parked else (0, 0)
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
