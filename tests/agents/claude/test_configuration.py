"""Claude Code's own settings: whatever in them would bill a key is found, with its file and its name."""

import pytest
from tests.agents.fake_machine import FakeMachine, metered

from paceline.agents import Account

USER = "home/.claude/settings.json"
PLACES = [
    USER,
    "home/project/.claude/settings.json",
    "home/project/.claude/settings.local.json",
    "etc/claude-code/managed-settings.json",
    "etc/claude-code/managed-settings.d/10-team.json",
]
BILLED = [
    {"ANTHROPIC_API_KEY": "sk-1"},
    {"ANTHROPIC_AUTH_TOKEN": "sk-1"},
    {"ANTHROPIC_FOUNDRY_API_KEY": "sk-1"},
    {"AWS_BEARER_TOKEN_BEDROCK": "sk-1"},
    {"CLAUDE_CODE_USE_BEDROCK": "1"},
    {"CLAUDE_CODE_USE_VERTEX": "true"},
    {"CLAUDE_CODE_USE_FOUNDRY": 1},
    {"ANTHROPIC_BASE_URL": "https://proxy.example.com"},
    {"ANTHROPIC_CUSTOM_HEADERS": "X-Team: docs\nx-api-key: sk-1"},
]
HARMLESS = [
    {"ANTHROPIC_API_KEY": ""},
    {"CLAUDE_CODE_USE_BEDROCK": "0"},
    {"CLAUDE_CODE_USE_BEDROCK": "false"},
    {"ANTHROPIC_BASE_URL": "https://api.anthropic.com"},
    {"ANTHROPIC_CUSTOM_HEADERS": "X-Team: docs"},
    {"ANTHROPIC_MODEL": "opus", "OPENAI_API_KEY": "sk-of-a-tool"},
]


def test_a_plain_login_has_no_findings(machine: FakeMachine) -> None:
    machine.write(USER, {"model": "opus", "permissions": {"allow": ["Bash"]}})
    machine.write(
        "home/.claude.json", {"oauthAccount": {"accountUuid": "1"}, "customApiKeyResponses": {"approved": ["x"]}}
    )

    assert machine.find("claude") == []


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("env", BILLED)
def test_a_variable_that_bills_is_found_wherever_the_settings_set_it(
    machine: FakeMachine, place: str, env: dict[str, object]
) -> None:
    machine.write(place, {"env": env})

    assert machine.keys("claude") == {place: [f"env.{name}" for name in env]}


@pytest.mark.parametrize("env", HARMLESS)
def test_a_variable_that_bills_nothing_is_none(machine: FakeMachine, env: dict[str, object]) -> None:
    machine.write(USER, {"env": env})

    assert machine.find("claude") == []


def test_a_helper_is_found(machine: FakeMachine) -> None:
    machine.write(USER, {"apiKeyHelper": "echo sk-1"})

    assert machine.keys("claude") == {USER: ["apiKeyHelper"]}


def test_a_forced_console_login_is_told_but_a_login_that_exists_is_used(machine: FakeMachine) -> None:
    machine.write(USER, {"forceLoginMethod": "console"})

    (finding,) = machine.find("claude")

    assert (finding.key, finding.holds) == ("forceLoginMethod", False)


def test_local_settings_of_the_repository_count_in_its_folders(machine: FakeMachine) -> None:
    machine.write("home/.git/HEAD", "ref: refs/heads/main")
    machine.write("home/.claude/settings.local.json", {"apiKeyHelper": "x"})

    assert machine.keys("claude") == {"home/.claude/settings.local.json": ["apiKeyHelper"]}


def test_a_login_of_the_console_is_found(machine: FakeMachine) -> None:
    machine.write("home/.claude.json", {"primaryApiKey": "sk-1"})

    assert machine.keys("claude") == {"home/.claude.json": ["primaryApiKey"]}


def test_the_folder_of_the_account_is_inspected_and_not_the_default_one(machine: FakeMachine) -> None:
    account = Account(name="max-1", provider="anthropic", kind="subscription", env={"CLAUDE_CONFIG_DIR": "~/.max-1"})
    machine.write(USER, {"apiKeyHelper": "x"})
    machine.write("home/.max-1/settings.json", {"env": {"ANTHROPIC_API_KEY": "sk-1"}})
    machine.write("home/.max-1/.claude.json", {"primaryApiKey": "sk-1"})

    assert machine.keys("claude", account) == {
        "home/.max-1/settings.json": ["env.ANTHROPIC_API_KEY"],
        "home/.max-1/.claude.json": ["primaryApiKey"],
    }


@pytest.mark.parametrize("form", ["json", "file", "equals"])
def test_settings_on_the_command_line_are_inspected(machine: FakeMachine, form: str) -> None:
    file = machine.write("home/mine.json", {"apiKeyHelper": "x"})
    args = {
        "json": ("--settings", '{"apiKeyHelper": "x"}'),
        "file": ("--settings", str(file)),
        "equals": (f"--settings={file}",),
    }

    assert list(machine.keys("claude", args=args[form]).values()) == [["apiKeyHelper"]]


def test_the_own_key_of_a_metered_account_is_fine_and_another_is_not(machine: FakeMachine) -> None:
    machine.write(USER, {"env": {"ANTHROPIC_API_KEY": "sk-own", "ANTHROPIC_BASE_URL": "https://proxy.example.com"}})
    machine.write("home/project/.claude/settings.json", {"env": {"ANTHROPIC_API_KEY": "sk-other"}})

    found = machine.keys("claude", metered("anthropic"), environ={"WORK_KEY": "sk-own"})

    assert found == {"home/project/.claude/settings.json": ["env.ANTHROPIC_API_KEY"]}


def test_a_metered_account_without_a_named_key_bills_what_its_cli_bills(machine: FakeMachine) -> None:
    machine.write(USER, {"apiKeyHelper": "x"})

    assert machine.find("claude", Account(name="work", provider="anthropic")) == []


def test_a_command_on_a_subscription_is_taken_for_the_cli_of_its_provider(machine: FakeMachine) -> None:
    machine.write(USER, {"apiKeyHelper": "x"})
    account = Account(name="max-1", provider="anthropic", kind="subscription")

    assert machine.keys("command", account, command=("./ask.sh",)) == {USER: ["apiKeyHelper"]}
    assert machine.find("command", None, command=("make", "lint")) == []
    assert machine.keys("command", None, command=("/opt/bin/claude", "-p")) == {USER: ["apiKeyHelper"]}
