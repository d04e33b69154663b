"""Events of which nothing is the CLI's own error."""

import pytest
from tests.detect.readings import NOW

from paceline.detect.observation_reader import read_event


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "user", "message": {"content": [{"type": "tool_result", "content": "429 Too Many Requests"}]}},
        {"type": "item.completed", "item": {"type": "command_execution", "aggregated_output": "rate limit exceeded"}},
        {"type": "item.completed", "item": {"type": "agent_message", "text": "You've hit your usage limit."}},
        {"type": "stream_event", "event": {"delta": {"text": "quota exceeded"}}},
        {"type": "system", "subtype": "init", "tools": ["rate limit exceeded"]},
        {"type": "text", "part": {"text": "API Error: Rate limit reached"}},
        {"type": "tool_use", "part": {"state": {"output": "429 rate limit exceeded"}}},
        {},
        {"type": 5},
        {"type": "rate_limit_event"},
        {"type": "error"},
    ],
)
def test_what_others_wrote_inside_of_an_event_is_no_signal(fields: dict[str, object]) -> None:
    assert read_event("claude-code", fields, seen_at=NOW, tz="UTC") == []
