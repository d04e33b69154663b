"""The unmodified CLIs read their prompt from standard input, so that no other user of the machine can see it.

Runs on `make test-agents`.
"""

from pathlib import Path

import msgspec
import pytest
from tests.agents.agent_cli import AGENTS, IS_INSTALLED, AgentRun, run_agent

from paceline.agents import Task, load_agent
from paceline.detect import StreamReader
from paceline.testing import FakeProvider

FIRST, SECOND = "Count the seven CONFIDENTIAL penguins.", "Now the SECRET geese."


def conversation_of(provider: str, run: AgentRun) -> str | None:
    reader = StreamReader(provider)
    reader.feed(run.stdout.encode(), channel="stdout", seen_at=0.0)
    return reader.session_id


@pytest.mark.agents
@pytest.mark.skipif(not IS_INSTALLED, reason="no agent CLIs here: make agents")
@pytest.mark.parametrize("name", sorted(AGENTS))
def test_prompts_of_new_and_resumed_conversations_reach_the_model_but_no_process_list(
    name: str, tmp_path: Path
) -> None:
    agent = AGENTS[name]
    (tmp_path / "work").mkdir()
    task = Task(unit_id="docs/a", attempt_id="a1", prompt=FIRST, cwd=str(tmp_path / "work"))

    with FakeProvider() as provider:
        first = run_agent(agent, tmp_path, provider, task)
        conversation = conversation_of(load_agent(agent.profile).provider, first)
        begun = "\n".join(text for request in provider.requests for text in request.prompts)
        task = msgspec.structs.replace(task, prompt=SECOND, conversation_id=conversation)
        second = run_agent(agent, tmp_path, provider, task)
        resumed = "\n".join(provider.requests[-1].prompts)

    assert (first.exit_code, second.exit_code) == (0, 0), first.stderr + second.stderr
    assert FIRST in begun
    assert SECOND in resumed
    assert not any(word in argument for argument in (*first.argv, *second.argv) for word in ("CONFIDENTIAL", "SECRET"))
