"""Profiles of agent CLIs: what is shipped loads, fills in as the real CLIs want it, and nothing else passes."""

import pytest

from paceline.agents import AgentProfile, agent_names, load_agent, parse_agent
from paceline.errors import InvalidInput

MINIMAL = """
name = "x"
provider = "x"
stream = "text"
start = ["x", "{prompt}"]
"""


def test_every_agent_of_the_plan_file_is_shipped() -> None:
    assert agent_names() == (
        "aider",
        "claude",
        "codex",
        "command",
        "copilot",
        "gemini",
        "openclaw",
        "openclaw-gateway",
        "opencode",
        "qwen",
    )


@pytest.mark.parametrize("name", agent_names())
def test_a_shipped_profile_loads_under_its_own_name(name: str) -> None:
    assert load_agent(name).name == name


def test_a_fresh_conversation() -> None:
    line = load_agent("claude").command_line("say hi", model="opus-4-6")

    assert line == [
        *("claude", "-p", "say hi", "--output-format", "stream-json", "--verbose", "--model", "opus-4-6"),
    ]


def test_without_a_model_its_flag_is_left_out() -> None:
    line = load_agent("codex").command_line("say hi")

    assert line == ["codex", "exec", "--json", "--skip-git-repo-check", "say hi"]


def test_a_conversation_goes_on_by_its_session_id() -> None:
    line = load_agent("opencode").command_line("go on", conversation_id="ses_1", model="anthropic/opus")

    assert line == [
        *("opencode", "run", "--format", "json", "--print-logs", "--log-level", "ERROR"),
        *("--session", "ses_1", "--model", "anthropic/opus", "go on"),
    ]


def test_an_agent_without_sessions_refuses_to_resume() -> None:
    with pytest.raises(InvalidInput, match="'aider' cannot resume"):
        load_agent("aider").command_line("go on", conversation_id="s1")


def test_braces_in_a_prompt_are_left_alone() -> None:
    line = parse_agent(MINIMAL).command_line("print {session_id} and {prompt} {")

    assert line == ["x", "print {session_id} and {prompt} {"]


@pytest.mark.parametrize("name", ["claude", "codex", "gemini", "openclaw", "opencode", "qwen", "copilot"])
def test_an_agent_with_a_subscription_names_the_keys_that_would_be_billed_instead(name: str) -> None:
    assert load_agent(name).metered_variables != ()


def test_the_smallest_profile() -> None:
    assert parse_agent(MINIMAL) == AgentProfile(name="x", provider="x", stream="text", start=("x", "{prompt}"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('name = "x"', "missing required field"),
        (MINIMAL + 'colour = "red"', "unknown field `colour`"),
        (MINIMAL + 'model = "opus"', r"Expected `array`, got `str` - at `\$.model`"),
        (MINIMAL + 'model = ["{modle}"]', r"`model` has unknown placeholders \['modle'\]"),
        (MINIMAL + 'resume = ["x", "{prompt}"]', "`resume` names no {session_id}"),
        (MINIMAL + "[environment]\nA = 1", "Expected `str`, got `int`"),
        ("name = ", "Invalid value"),
    ],
)
def test_what_is_not_a_profile_is_refused_with_the_reason(text: str, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        parse_agent(text)


def test_an_unknown_agent_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(InvalidInput, match=r"unknown agent '\.\./claude'; known are aider, claude, "):
        load_agent("../claude")
