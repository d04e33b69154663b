"""The default login of an agent CLI: whose it is, and where it lives."""

import pytest

from paceline.agents import Account, check_agent, load_agent
from paceline.agents.account import default_account, login_folder, shipped_logins


def test_every_shipped_agent_but_a_plans_own_command_has_a_default_login() -> None:
    assert {agent: account.id for agent, account in shipped_logins().items()} == {
        "aider": "aider/default",
        "claude": "anthropic/default",
        "codex": "openai/default",
        "copilot": "github/default",
        "gemini": "google/default",
        "openclaw": "openclaw/default",
        "openclaw-gateway": "openclaw-gateway/default",
        "opencode": "opencode/default",
        "qwen": "qwen/default",
    }
    assert default_account(load_agent("command")) is None


def test_a_default_login_is_a_subscription_that_is_never_billed() -> None:
    assert default_account(load_agent("claude")) == Account(
        name="default", provider="anthropic", kind="subscription", is_implicit=True
    )


@pytest.mark.parametrize(("program", "scope"), [("/opt/bin/claude", "anthropic/default"), ("mine", "fast/default")])
def test_a_profile_of_ones_own_shares_the_login_of_the_program_that_it_starts(program: str, scope: str) -> None:
    profile = check_agent({"name": "fast", "provider": "codex", "stream": "json", "start": [program, "{prompt}"]})

    account = default_account(profile)

    assert account is not None
    assert account.scope == scope


@pytest.mark.parametrize(
    ("provider", "env", "folder"),
    [
        ("anthropic", {}, "/home/ada/.claude"),
        ("anthropic", {"CLAUDE_CONFIG_DIR": "/home/ada/.claude/"}, "/home/ada/.claude"),
        ("openai", {"CODEX_HOME": "/x"}, "/x"),
        ("openai", {"HOME": "/home/bob"}, "/home/bob/.codex"),
        ("google", {"GEMINI_CLI_HOME": "/x"}, "/x/.gemini"),
        ("opencode", {"XDG_DATA_HOME": "/x"}, "/x/opencode"),
        ("qwen", {}, "/home/ada/.qwen"),
    ],
)
def test_a_login_is_known_by_its_folder(provider: str, env: dict[str, str], folder: str) -> None:
    assert login_folder(provider, {"HOME": "/home/ada", **env}) == folder
