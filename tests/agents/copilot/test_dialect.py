"""Copilot CLI: its hint how to resume."""

from tests.agents.stream.agent_output import (
    AgentRun,
)


def test_copilot_names_its_session_with_the_hint_how_to_resume_it() -> None:
    session = AgentRun("copilot-cli")
    session.prints(b"Answer.\n")
    session.prints(b"\nChanges    +0 -0\nResume     copilot --resume=74b08c31-b2e7\n", "stderr")

    assert session.reader.session_id == "74b08c31-b2e7"
    assert session.ends(0) == "success"
