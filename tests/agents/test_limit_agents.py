"""Windows, concurrency and resume with every unmodified CLI, through the engine. Runs on `make test-agents`."""

import time
from pathlib import Path

import pytest
from tests.agents.agent_cli import AGENTS, IS_INSTALLED, InstalledAgent, connect, run_agent
from tests.agents.agent_engine import AgentEngine

from paceline.agents import Account, Task, load_agent
from paceline.detect import StreamReader
from paceline.testing import FakeProvider, VirtualClock
from paceline.testing.provider import RequestRecord, Scenario, Step

FIRST_PROMPT = "Remember the word heliotrope."
PROVIDERS = {
    "claude": "anthropic",
    "codex": "openai",
    "gemini": "google",
    "opencode": "opencode",
    "qwen": "qwen",
    "copilot": "github",
}
WINDOW_SECONDS = 1500.0
"""Shorter than the half hour after which a closed window is first tried before its reset."""
SPENT = {
    "claude": "429_unified",
    "claude-newest": "429_unified",
    "codex": "429_usage_limit",
    "gemini": "429_perday",
}
"""How the CLIs that give up at once meet a spent window. qwen and opencode retry in silence for minutes."""
LOGIN = {"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-fake"}

pytestmark = [pytest.mark.agents, pytest.mark.skipif(not IS_INSTALLED, reason="no agent CLIs here: make agents")]


@pytest.fixture
def clock() -> VirtualClock:
    """Starts now: Codex states its reset as a time of day."""
    return VirtualClock(time.time())


def account_of(agent: InstalledAgent, home: Path, url: str, env: dict[str, str] | None = None) -> Account:
    """Return an account that points the CLI at the fake provider, and write the CLI's configuration."""
    home.mkdir(parents=True, exist_ok=True)
    variables = connect(agent, home, url) | (env or {})
    kept = {name: value for name, value in variables.items() if value}
    return Account(name="key", provider=PROVIDERS[agent.profile], env=kept)


def remembers(record: RequestRecord) -> bool:
    return any(FIRST_PROMPT in prompt for prompt in record.prompts)


@pytest.mark.parametrize("name", AGENTS)
def test_every_cli_resumes_a_conversation_by_the_id_it_printed(name: str, tmp_path: Path) -> None:
    agent = AGENTS[name]
    work = tmp_path / "work"
    work.mkdir()
    task = Task(unit_id="c/u", attempt_id="a", prompt=FIRST_PROMPT, cwd=str(work))
    with FakeProvider() as provider:
        first = run_agent(agent, tmp_path, provider, task)
        reader = StreamReader(load_agent(agent.profile).provider, tz="UTC")
        reader.feed(first.stdout.encode(), channel="stdout", seen_at=0.0)
        reader.close(exit_code=first.exit_code, seen_at=0.0)
        before = len(provider.requests)
        again = Task(
            unit_id="c/u", attempt_id="b", prompt="Which word?", cwd=str(work), conversation_id=reader.session_id
        )
        second = run_agent(agent, tmp_path, provider, again)
        resumed = provider.requests[before:]

    assert (first.exit_code, reader.outcome) == (0, "success"), first
    assert second.exit_code == 0, second
    assert any(remembers(record) for record in resumed), second


@pytest.mark.parametrize("name", SPENT)
async def test_a_spent_window_parks_the_unit_until_its_reset(name: str, tmp_path: Path, clock: VirtualClock) -> None:
    step = Step(error=SPENT[name], times=1, resets_in=WINDOW_SECONDS, retry_after=WINDOW_SECONDS)
    async with FakeProvider(Scenario(script=(step,)), clock=clock) as provider:
        env = LOGIN if AGENTS[name].profile == "claude" else None
        account = account_of(AGENTS[name], tmp_path / "home", provider.url, env)
        async with AgentEngine(tmp_path, clock, agent=name, account=account) as engine:
            parked = await engine.run_until(lambda unit: unit.counters.attempts == 1 and unit.state != "running")
            assert parked.resume_at is not None, parked
            await clock.advance(parked.resume_at - clock.now() + 1.0)
            done = await engine.run_until(lambda unit: unit.state not in ("todo", "running"))

    assert (parked.state, parked.counters.parks, parked.counters.failures) == ("todo", 1, 0)
    assert (done.state, done.counters.failures) == ("done", 0)


@pytest.mark.parametrize("name", AGENTS)
async def test_a_concurrency_429_closes_no_window_and_the_unit_is_done(
    name: str, tmp_path: Path, clock: VirtualClock
) -> None:
    step = Step(error="429_concurrency", times=1, retry_after=1.0)
    async with FakeProvider(Scenario(script=(step,)), clock=clock) as provider:
        account = account_of(AGENTS[name], tmp_path / "home", provider.url)
        async with AgentEngine(tmp_path, clock, agent=name, account=account) as engine:
            first = await engine.run_until(lambda unit: unit.counters.attempts == 1 and unit.state != "running")
            if first.resume_at is not None:
                await clock.advance(max(0.0, first.resume_at - clock.now()) + 1.0)
            done = await engine.run_until(lambda unit: unit.state not in ("todo", "running"))

    assert (done.state, done.counters.failures, done.counters.parks) == ("done", 0, 0)
    assert engine.events("window.closed") == []
    assert [record.error for record in provider.requests][:1] == ["429_concurrency"]
