"""Names of models that a CLI does not know are noticed, with the name that it does know."""

import pytest

from paceline.agents.model_names import model_problem


@pytest.mark.parametrize(
    ("agent", "model"),
    [
        ("claude", "opus"),
        ("claude", "sonnet[1m]"),
        ("claude", "claude-opus-4-6"),
        ("claude", "us.anthropic.claude-opus-4-6-v1:0"),
        ("codex", "gpt-5"),
        ("codex", "my-own-model"),
        ("gemini", "gemini-2.5-pro"),
        ("opencode", "anthropic/claude-opus-4-6"),
        ("qwen", "anything"),
    ],
)
def test_a_name_that_the_cli_may_know_is_left_alone(agent: str, model: str) -> None:
    assert model_problem(agent, model) is None


@pytest.mark.parametrize(
    ("agent", "model", "fix"),
    [
        ("claude", "opus-4-6", 'write model = "claude-opus-4-6", or an alias such as "opus"'),
        ("claude", "gpt-5", 'write a name that it knows, such as "opus" or "claude-opus-4-6"'),
        ("codex", "opus", 'name a model of OpenAI, such as model = "gpt-5"'),
        ("gemini", "opus", 'write a name that it knows, such as "gemini-2.5-pro"'),
        ("opencode", "gpt-5", 'write provider/model, such as model = "anthropic/gpt-5"'),
        ("openclaw", "gpt-5", 'write provider/model, such as model = "anthropic/gpt-5"'),
    ],
)
def test_a_name_that_the_cli_does_not_know_comes_with_the_fix(agent: str, model: str, fix: str) -> None:
    assert model_problem(agent, model) == (f"{agent} does not know the model {model!r}", fix)
