"""Qwen Code, which prints a copy of Claude Code's stream format.

Here: what the copy adds, and its silent waits. The sentences of its API are in `detect/shared_rules.py`.
"""

import msgspec

from paceline.agents import claude
from paceline.agents.dialect import AgentCli, Facts, NoticeRules, ReportedUsage
from paceline.detect.json_objects import Event, number_at, text_at
from paceline.detect.provider import LimitReading, Provider
from paceline.detect.times import Reset, to_number


def _read_retry(event: Event) -> LimitReading | None:
    """Read `system/retry` of 0.24: it has the delay of throttling and overload alike; stderr states which it is."""
    data = event.get("data")
    if not claude.is_retry(event) or not isinstance(data, dict):
        return None
    delay = to_number(data.get("delayMs"))
    if delay is None or to_number(data.get("attempt")) is None:
        return None
    reset = Reset(after=delay / 1000, confidence=0.4, source="backoff", rule="field.delayMs", own=True)
    return LimitReading(kind="rate", reset=reset, rule="event.retry")


def _read_result(event: Event) -> LimitReading | None:
    """Read a result with `is_error: false` whose text is an error nevertheless."""
    if event.get("is_error") or event.get("status") == "error":
        return None
    return claude.read_result_error(event) if claude.begins_as_error(text_at(event, "result") or "") else None


def _read_facts(event: Event) -> Facts:
    """Read an event as Claude Code's. Its `usage` counts the whole conversation, and its input includes the cache."""
    facts = claude.FORMAT.read(event)
    usage = event.get("usage")
    if facts.usage is None or not isinstance(usage, dict):
        return facts
    tokens = claude.message_tokens(usage)
    if number_at(usage, "total_tokens") is not None:
        tokens = msgspec.structs.replace(tokens, input=max(0, tokens.input - tokens.cache_read))
    return msgspec.structs.replace(facts, usage=ReportedUsage(by_model={"": tokens}, reach="conversation"))


FORMAT = msgspec.structs.replace(claude.FORMAT, read=_read_facts)

PROVIDER = Provider(
    name="qwen",
    events={"system": _read_retry, "result": _read_result},
)
CLIS = (
    AgentCli(
        name="qwen-code",
        dialect=FORMAT,
        notices=NoticeRules(denied=r"Tool \"(\w{1,60})\" requires user approval but cannot execute"),
        # Before 0.24 it announces no retry. Stopped in its own backoff it reports that it was cancelled; in a wait
        # that the server asked for it cannot.
        silent_wait="rate_limit",
        silent_wait_when_cancelled="overloaded",
        cancelled_line="Operation cancelled.",
    ),
)
