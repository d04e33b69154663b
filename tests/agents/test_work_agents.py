"""Workspaces and checks with the unmodified Claude Code and Codex CLIs.

The agent first writes the wrong file. The check fails, its output goes into the same conversation, and the agent writes
the right one. Its work is then committed to the branch of the unit.
"""

import subprocess
import time
from pathlib import Path

import pytest
from tests.agents.agent_cli import AGENTS, IS_INSTALLED, connect
from tests.agents.agent_engine import AgentEngine

from paceline.agents import Account
from paceline.store import WorkspaceSettings
from paceline.testing import FakeProvider, VirtualClock
from paceline.testing.provider import Scenario, Step, ToolCall

WRONG, RIGHT = "wrong.txt", "right.txt"
CHECK = ("sh", "-c", f"test -f {RIGHT} || {{ echo {RIGHT} is missing; exit 1; }}")
ANSWERS = {"claude": 2, "claude-newest": 2, "codex": 3}
"""Parts of the agent's answer that the conversation has after the first session."""

pytestmark = [pytest.mark.agents, pytest.mark.skipif(not IS_INSTALLED, reason="no agent CLIs here: make agents")]


def git(folder: Path, *arguments: str) -> str:
    names = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    return subprocess.run(["git", *names, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def in_worktrees(work: Path) -> dict[str, object]:
    """Return settings of a campaign whose folder is made a repository."""
    git(work, "init", "-q", "-b", "main")
    (work / "readme.txt").write_text("work\n")
    git(work, "add", "-A")
    git(work, "commit", "-qm", "begin")
    bases = {str(work): git(work, "rev-parse", "HEAD").strip()}
    return {"workspace": WorkspaceSettings(bases=bases, keep="all"), "check": CHECK}


def writes(agent: str, workspace: Path, name: str) -> ToolCall:
    if agent.startswith("claude"):
        return ToolCall(name="Write", arguments={"file_path": str(workspace / name), "content": "x"})
    return ToolCall(name="exec_command", arguments={"cmd": f"echo x > {name}"})


def engine_of(agent: str, folder: Path, clock: VirtualClock, provider: FakeProvider) -> AgentEngine:
    if agent == "codex":
        account = Account(name="plus", provider="openai", env={"FAKE_KEY": "sk-fake-0000"})
        connect(AGENTS["codex"], folder / "home", provider.url)
    else:
        env = {"ANTHROPIC_BASE_URL": provider.url, "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-fake"}
        account = Account(name="max-1", provider="anthropic", kind="subscription", env=env)
    return AgentEngine(folder, clock, agent=agent, account=account, plan=in_worktrees)


@pytest.mark.parametrize("agent", ["claude", "claude-newest", "codex"])
async def test_a_failed_check_is_repaired_in_the_same_conversation(agent: str, tmp_path: Path) -> None:
    clock = VirtualClock(time.time())
    workspace = tmp_path / "paceline" / "workspaces" / "work" / "a"
    first = Step(error="ok", tool=writes(agent, workspace, WRONG))
    second = Step(error="ok", tool=writes(agent, workspace, RIGHT), answers=ANSWERS[agent])

    scenario = Scenario(script=(first, second))
    async with FakeProvider(scenario, clock=clock) as provider, engine_of(agent, tmp_path, clock, provider) as engine:
        done = await engine.run_until(lambda unit: unit.state not in ("todo", "running"))

    assert (done.state, done.counters.failures, done.counters.attempts) == ("done", 0, 2)
    assert [(check.exit_code, check.tail) for check in done.result.checks] == [(1, f"{RIGHT} is missing"), (0, "")]
    assert len({record.session for record in provider.requests}) == 1
    assert any(f"{RIGHT} is missing" in prompt for prompt in provider.requests[-1].prompts)
    committed = git(tmp_path / "work", "ls-tree", "--name-only", "paceline/work/a").split()
    assert committed == ["readme.txt", RIGHT, WRONG]
    assert git(tmp_path / "work", "status", "--porcelain") == ""
