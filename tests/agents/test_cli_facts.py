"""Versions and model names of the agent CLIs."""

import re
from pathlib import Path

import pytest

from paceline.agents.cli_facts import (
    TESTED_VERSIONS,
    is_held_back_by_node,
    is_older_than_tested,
    model_problem,
    parse_version,
)

SCRIPTS = [Path(__file__).parents[2] / "scripts" / name for name in ("agents.sh", "openclaw.sh")]
FOLDERS = {
    "claude": "claude-code",
    "codex": "codex",
    "copilot": "copilot",
    "gemini": "gemini-cli",
    "openclaw": "openclaw",
    "opencode": "opencode-ai",
    "qwen": "qwen-code",
}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.1.325 (Claude Code)", (2, 1, 325)),
        ("codex-cli 0.166.0", (0, 166, 0)),
        ("v1.18", (1, 18, 0)),
        ("does not answer --version", None),
        ("", None),
    ],
)
def test_a_version_is_read_from_what_a_cli_prints(text: str, version: tuple[int, int, int] | None) -> None:
    assert parse_version(text) == version


def test_only_a_version_below_all_tested_ones_is_too_old() -> None:
    assert [is_older_than_tested("claude", text) for text in ("2.1.196", "2.1.197", "2.1.325", "3.0.0", "?")] == [
        True,
        False,
        False,
        False,
        False,
    ]
    assert not is_older_than_tested("mine", "0.0.1")


def test_a_version_that_node_20_gets_is_held_back() -> None:
    assert [is_held_back_by_node("claude", text) for text in ("2.1.197", "2.1.325")] == [True, False]
    assert not is_held_back_by_node("codex", "0.1.0")


def test_the_tested_versions_are_those_that_are_installed_for_the_tests() -> None:
    pinned = re.findall(r'"([\w-]+)=[^"]*@([\d.]+)"', "".join(script.read_text() for script in SCRIPTS))
    installed = {
        agent: tuple(version for name, version in pinned if name.removesuffix("-newest") == folder)
        for agent, folder in FOLDERS.items()
    }

    assert installed == dict(TESTED_VERSIONS)


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
