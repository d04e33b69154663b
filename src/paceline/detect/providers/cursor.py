"""Cursor: its slow pool, its connection errors, and a CLI that prints Claude Code's stream format."""

import msgspec

from paceline.detect.parsing.json_objects import Event, text_at
from paceline.detect.provider import AgentCli, Provider
from paceline.detect.providers import anthropic
from paceline.detect.rules import Rule, rule
from paceline.detect.run_facts import Denial, Facts

RULES: tuple[Rule, ...] = (
    rule("cursor.slow-pool", "rate", r"using the slow pool", anywhere=True),
    rule(
        "cursor.connect",
        "overloaded",
        r"connect ?error:? \[?(?:resource_exhausted|unavailable)|\[(?:resource_exhausted|unavailable)\] error",
    ),
)
_REFUSALS = frozenset({"rejected", "permissionDenied"})
"""Members of a tool call's result if it was not allowed."""


def _read_facts(event: Event) -> Facts:
    return Facts(denials=_denials(event)) if event.get("type") == "tool_call" else anthropic.FORMAT.read(event)


def _denials(event: Event) -> tuple[Denial, ...]:
    """Read a completed tool call: `{"tool_call": {"shellToolCall": {"result": {"rejected": {...}}}}}`."""
    calls = event.get("tool_call")
    denied = []
    for name, call in calls.items() if isinstance(calls, dict) else ():
        result = call.get("result") if isinstance(call, dict) else None
        if isinstance(result, dict) and not _REFUSALS.isdisjoint(result):
            denied.append(Denial(tool=str(name).removesuffix("ToolCall"), call=text_at(event, "call_id") or ""))
    return tuple(denied)


FORMAT = msgspec.structs.replace(
    anthropic.FORMAT, read=_read_facts, denial_marks=tuple(f'"{name}"'.encode() for name in sorted(_REFUSALS))
)
PROVIDER = Provider(name="cursor", rules=RULES, clis=(AgentCli(name="cursor-agent", dialect=FORMAT),))
