"""The unmodified Claude Code and Codex CLIs are ended at a turn, and continue their conversation later."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.agents.agent_cli import AGENTS, IS_INSTALLED, connect
from tests.agents.agent_engine import AgentEngine

from paceline.agents import Account
from paceline.engine import commands
from paceline.testing import FakeProvider, VirtualClock
from paceline.testing.provider import Scenario, Step, ToolCall

HOUR = 3600.0
LATENCY = 1.0
WAIT = "touch running; while [ ! -e go ]; do sleep 0.1; done; echo tool-$((40 + 2))"
"""A command that begins, waits for the test, and then prints something."""
CALLS = {
    "claude": ToolCall(name="Bash", arguments={"command": WAIT, "description": "Waits"}),
    "codex": ToolCall(name="exec_command", arguments={"cmd": WAIT, "yield_time_ms": 30_000}),
}
pytestmark = [
    pytest.mark.agents,
    pytest.mark.skipif(not IS_INSTALLED, reason="no agent CLIs here: make agents"),
]


def engine_of(agent: str, folder: Path, clock: VirtualClock, provider: FakeProvider) -> AgentEngine:
    if agent == "claude":
        env = {"ANTHROPIC_BASE_URL": provider.url, "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-fake"}
        account = Account(name="max-1", provider="anthropic", kind="subscription", env=env)
        args = (*AGENTS["claude"].args, "--allowedTools=Bash")
        return AgentEngine(folder, clock, agent=agent, account=account, plan=lambda _: {"args": args})
    account = Account(name="plus", provider="openai", env={"FAKE_KEY": "sk-fake-0000"})
    engine = AgentEngine(folder, clock, agent=agent, account=account, plan=lambda _: {"permissions": "edit"})
    connect(AGENTS["codex"], folder / "home", provider.url)
    return engine


@pytest.mark.parametrize("agent", ["claude", "codex"])
async def test_a_session_that_is_ended_at_a_turn_continues_with_the_results_of_its_tools(
    agent: str, tmp_path: Path
) -> None:
    clock = VirtualClock(time.time())
    scenario = Scenario(latency=LATENCY, script=(Step(error="ok", tool=CALLS[agent]),))
    async with FakeProvider(scenario, clock=clock) as provider, engine_of(agent, tmp_path, clock, provider) as engine:

        async def until(condition: Callable[[], bool], *, answering: bool = True) -> None:
            """Make passes. The provider answers only while time passes."""
            while not condition():
                await engine.make_passes(1)
                if answering:
                    await clock.advance(LATENCY)

        await until((tmp_path / "work" / "running").exists)
        resume_at = clock.now() + HOUR
        commands.end_at_turn(engine.store, engine.unit, reason="make room", resume_at=resume_at, now=clock.now())
        await engine.make_passes(3)
        at_work = engine.unit
        (tmp_path / "work" / "go").touch()
        await until(lambda: engine.unit.state != "running", answering=False)
        ended = engine.unit
        kept = [path for path in (tmp_path / "home").rglob("*.jsonl") if "tool-42" in path.read_text()]
        await clock.advance(HOUR)
        await until(lambda: engine.unit.state not in ("todo", "running"))
        done = engine.unit

    assert at_work.state == "running"  # its tool was at work
    assert (ended.state, ended.reason, ended.resume_at) == ("todo", "make room", resume_at)
    assert kept  # the CLI has stored the result of the tool
    assert (ended.counters.attempts, ended.counters.failures, ended.counters.losses) == (1, 0, 0)
    assert (done.state, done.counters.attempts, done.counters.failures) == ("done", 2, 0)
    assert done.conversation_id == ended.conversation_id is not None
    last = provider.requests[-1]
    assert last.session == ended.conversation_id
    assert last.answers >= 1  # the answer that called the tool is in the conversation that continues
