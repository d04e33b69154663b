"""aider: notices between prose."""

from tests.agents.stream.agent_output import (
    AgentRun,
    kinds,
)


def test_aider_prints_its_notices_among_its_prose() -> None:
    session = AgentRun("aider")
    notice = (
        b"litellm.RateLimitError: RateLimitError: OpenAIException - Rate limit exceeded\nRetrying in 0.2 seconds...\n"
    )

    reported = session.prints(b"I will add a rate limit.\n" + notice)

    assert kinds(reported) == ["RateLimited"]
    assert session.ends(0) == "rate_limit"
