"""The engine with the unmodified Claude Code and Codex CLIs: park, resume, and who pays (tests/agents/README.md).

Runs on `make test-agents`. The CLIs are real processes in real time; the engine and the provider share a clock that
only the test moves, so that the wait for a window is over at once.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.agents.agent_cli import AGENTS, IS_INSTALLED, connect
from tests.agents.agent_engine import PROMPT, AgentEngine

from paceline.agents import Account
from paceline.testing import FakeProvider, VirtualClock
from paceline.testing.provider import RequestRecord, Scenario, Step, ToolCall, Window

Build = Callable[[Path, VirtualClock, FakeProvider], AgentEngine]

WINDOW_SECONDS = 1500.0
"""Shorter than the half hour after which a closed window is first tried before its reset."""
ONE_MINUTE = 60.0
NOBODY = "http://127.0.0.1:9"
TOKEN, KEY, KEY_NAME = "sk-ant-oat01-fake", "sk-fake-0000", "ANTHROPIC_API_KEY"
LIST_FILES = {
    "claude": ToolCall(name="Bash", arguments={"command": "ls", "description": "Lists the files"}),
    "codex": ToolCall(name="exec_command", arguments={"cmd": "ls"}),
}
pytestmark = [
    pytest.mark.agents,
    pytest.mark.skipif(not IS_INSTALLED, reason="no agent CLIs here: make agents"),
]


@pytest.fixture
def clock() -> VirtualClock:
    """Starts now: Codex states its reset as a time of day."""
    return VirtualClock(time.time())


def spent_in_the_middle(agent: str) -> Scenario:
    """A window of one request. The answer to it calls a tool, so the same turn asks again, and is refused.

    Opens a minute early: Codex states the reset in whole minutes.
    """
    window = Window(name="5h", seconds=WINDOW_SECONDS, requests=1, late=-ONE_MINUTE)
    return Scenario(windows=(window,), script=(Step(error="ok", tool=LIST_FILES[agent]),))


def refused_in_the_middle() -> Scenario:
    """A 429 that has nothing to do with quota, after the first answer."""
    return Scenario(
        script=(
            Step(error="ok", tool=LIST_FILES["claude"]),
            Step(error="429_retry_after", retry_after=1.0),
        )
    )


def subscription(provider: FakeProvider) -> Account:
    env = {"ANTHROPIC_BASE_URL": provider.url, "CLAUDE_CODE_OAUTH_TOKEN": TOKEN}
    return Account(name="max-1", provider="anthropic", kind="subscription", env=env)


def claude_engine(folder: Path, clock: VirtualClock, provider: FakeProvider) -> AgentEngine:
    """With a key in the person's own environment, which a subscription must never use."""
    account = subscription(provider)
    return AgentEngine(folder, clock, agent="claude", account=account, environ={KEY_NAME: KEY})


def codex_engine(folder: Path, clock: VirtualClock, provider: FakeProvider) -> AgentEngine:
    account = Account(name="plus", provider="openai", env={"FAKE_KEY": KEY})
    engine = AgentEngine(folder, clock, agent="codex", account=account)
    connect(AGENTS["codex"], folder / "home", provider.url)
    return engine


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def asked(record: RequestRecord) -> int:
    """How often the unit's prompt stands in the conversation that the request carries."""
    return sum(prompt.endswith(PROMPT) for prompt in record.prompts)


@pytest.mark.parametrize(("agent", "build"), [("claude", claude_engine), ("codex", codex_engine)])
async def test_a_spent_window_parks_the_unit_and_its_conversation_goes_on_at_the_reset(
    agent: str, build: Build, tmp_path: Path, clock: VirtualClock
) -> None:
    scenario = spent_in_the_middle(agent)
    async with FakeProvider(scenario, clock=clock) as provider, build(tmp_path, clock, provider) as engine:
        parked = await engine.run_until(lambda unit: unit.counters.attempts == 1 and unit.state != "running")
        closed = engine.scope().window
        began_at = clock.now()
        assert parked.resume_at is not None
        await clock.advance(parked.resume_at - began_at - 1.0)
        await engine.make_passes(3)
        still_parked = engine.unit
        await clock.advance(1.0)
        done = await engine.run_until(lambda unit: unit.state not in ("todo", "running"))

    assert (parked.state, parked.reason, parked.counters.parks) == ("todo", "the quota window is spent", 1)
    assert closed is not None
    assert closed.state == "closed"
    assert closed.resets_at is not None
    assert 1.0 <= parked.resume_at - closed.resets_at <= 3.0
    assert abs(parked.resume_at - began_at - WINDOW_SECONDS) <= ONE_MINUTE  # Codex states whole minutes
    assert still_parked == parked
    assert (done.state, done.counters.attempts, done.counters.failures) == ("done", 2, 0)

    first, refused, resumed = provider.requests
    assert [record.error for record in provider.requests] == [None, "429_unified", None]
    assert first.session == refused.session == resumed.session == parked.conversation_id
    assert (first.answers, asked(first)) == (0, 1)
    assert refused.answers >= 1  # the conversation had begun
    assert resumed.answers >= refused.answers  # and all of it was sent again,
    assert asked(resumed) == 1  # with the task in it once: the resume prompt does not repeat the task
    assert [event.fields["session_id"] for event in engine.events("unit.resumed")] == [parked.conversation_id]


async def test_a_conversation_that_never_began_is_started_afresh(tmp_path: Path, clock: VirtualClock) -> None:
    scenario = Scenario(script=(Step(error="429_unified", resets_in=WINDOW_SECONDS),))
    async with FakeProvider(scenario, clock=clock) as provider, claude_engine(tmp_path, clock, provider) as engine:
        parked = await engine.run_until(lambda unit: unit.counters.attempts == 1 and unit.state != "running")
        await clock.advance(WINDOW_SECONDS + 3.0)  # the canary goes 1 to 3 s after the reset
        done = await engine.run_until(lambda unit: unit.state not in ("todo", "running"))

    assert (parked.counters.parks, parked.conversation_id) == (1, None)
    assert (done.state, done.counters.failures) == ("done", 0)
    refused, fresh = provider.requests
    assert (asked(fresh), fresh.answers) == (1, 0)
    assert fresh.session != refused.session


async def test_a_short_429_is_left_to_an_agent_that_waits_it_out(tmp_path: Path, clock: VirtualClock) -> None:
    """Claude Code does so with a key."""
    async with FakeProvider(refused_in_the_middle(), clock=clock) as provider:
        account = Account(name="work", provider="anthropic", env={"ANTHROPIC_BASE_URL": provider.url}, key_env=KEY_NAME)
        async with AgentEngine(tmp_path, clock, agent="claude", account=account, environ={KEY_NAME: KEY}) as engine:
            done = await engine.run_until(lambda unit: unit.state not in ("todo", "running"))

    assert (done.state, done.counters.attempts, done.counters.failures) == ("done", 1, 0)
    assert [record.error for record in provider.requests] == [None, "429_retry_after", None]
    assert len(engine.events("scope.paused")) == 1


async def test_a_429_that_ends_the_agent_is_no_spent_window_and_its_conversation_goes_on_soon(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """With a login Claude Code gives up at once, and its first word is that it was rejected."""
    scenario = refused_in_the_middle()
    async with FakeProvider(scenario, clock=clock) as provider, claude_engine(tmp_path, clock, provider) as engine:
        refused = await engine.run_until(lambda unit: unit.counters.attempts == 1 and unit.state != "running")
        assert refused.resume_at is not None
        waited = refused.resume_at - clock.now()
        await clock.advance(waited)
        done = await engine.run_until(lambda unit: unit.state not in ("todo", "running"))

    assert (refused.counters.refusals, refused.counters.parks, refused.counters.failures) == (1, 0, 0)
    assert waited <= ONE_MINUTE
    assert engine.events("window.closed") == []
    assert (done.state, done.counters.attempts) == ("done", 2)
    first, _, resumed = provider.requests
    assert (resumed.session, resumed.answers >= 1, asked(resumed)) == (first.session, True, 1)


async def test_a_key_in_the_environment_is_not_used_on_a_subscription(tmp_path: Path, clock: VirtualClock) -> None:
    async with FakeProvider(clock=clock) as provider, claude_engine(tmp_path, clock, provider) as engine:
        done = await engine.run_until(lambda unit: unit.state not in ("todo", "running"))

    assert done.state == "done"
    assert {record.key for record in provider.requests} == {TOKEN}


@pytest.mark.parametrize("settings", [{"apiKeyHelper": f"echo {KEY}"}, {"env": {KEY_NAME: KEY}}])
async def test_a_subscription_whose_cli_would_bill_a_key_is_held_before_the_first_request(
    settings: dict[str, object], tmp_path: Path, clock: VirtualClock
) -> None:
    """The key stands where no environment can be scrubbed: in the CLI's own settings."""
    async with FakeProvider(clock=clock) as provider, claude_engine(tmp_path, clock, provider) as engine:
        write(tmp_path / "home" / ".claude" / "settings.json", json.dumps(settings))
        held = await engine.run_until(lambda unit: unit.state not in ("todo", "running"))

    assert (held.state, held.counters.failures, held.conversation_id) == ("held", 0, None)
    assert str(tmp_path / "home" / ".claude" / "settings.json") in (held.reason or "")
    assert KEY not in (held.reason or "")
    assert provider.requests == []


async def test_opencode_that_reaches_nobody_costs_no_attempt_and_is_asked_no_longer(
    tmp_path: Path, clock: VirtualClock
) -> None:
    opencode = AGENTS["opencode"]
    account = Account(name="work", provider="any", env=opencode.env)
    async with AgentEngine(tmp_path, clock, agent="opencode", account=account) as engine:
        config = opencode.files[".config/opencode/opencode.json"].replace(', "apiKey": "sk-fake-0000"', "")
        connect(opencode, tmp_path / "home", NOBODY, {".config/opencode/opencode.json": config})
        unit = await engine.run_until(lambda unit: unit.counters.attempts > 0 and unit.state != "running")
        scope = engine.scope()

    assert (unit.state, unit.counters.failures, unit.counters.parks) == ("todo", 0, 0)
    assert "nobody answered" in str(unit.reason)
    assert (scope.windows, scope.held) == ((), None)
