"""OpenClaw: caps on parallel work, and limits that are no caps."""

import pytest
from tests.detect.readings import line_signals

from paceline.core.signals import (
    PlatformLimit,
)


@pytest.mark.parametrize(
    ("text", "in_use", "limit"),
    [
        ("sessions_spawn has reached max active children for this session (5/5)", 5, 5),
        ("sessions_spawn has reached max active children for this session (10/5; a.b.maxChildrenPerAgent).", 10, 5),
        ("sessions_spawn reached tools.swarm.maxChildrenPerGroup (3/3).", 3, 3),
        ("global worker limit reached (1/1 active); deferring", 1, 1),
        ("Too many concurrent requests. Limit: 4 concurrent requests", None, 4),
        ("agent thread limit reached", None, None),
        ("sessions_spawn has reached max active children for this session (2/0)", 2, None),
    ],
)
def test_a_platform_limit_is_reported_with_its_numbers(text: str, in_use: int | None, limit: int | None) -> None:
    cap = line_signals(text, "openclaw")[0]
    assert isinstance(cap, PlatformLimit)
    assert (cap.in_use, cap.limit) == (in_use, limit)


@pytest.mark.parametrize(
    "text",
    [
        "sessions_spawn is not allowed at this depth (current depth: 1, max: 1)",
        "Agent depth limit reached. Solve the task yourself.",
        "Context limit reached · /compact or /clear to continue",
        "Maximum turns reached.",
    ],
)
def test_other_limits_of_a_tool_are_not_about_capacity(text: str) -> None:
    assert line_signals(text, "openclaw") == []
