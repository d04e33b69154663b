"""What is run for a unit: the command line, the input, and above all an environment that bills nobody by surprise."""

import sys
from pathlib import Path

import msgspec
import pytest

from paceline.agents import Account, Task, agent_names, load_agent, prepare_session
from paceline.agents.account import default_account
from paceline.agents.launch import LONGEST_ARGUMENT_BYTES
from paceline.errors import InvalidInput

SUBSCRIPTION = Account(name="max-1", provider="anthropic", kind="subscription", env={"CLAUDE_CONFIG_DIR": "~/.max-1"})
WITHOUT_PERMISSIONS = ("command", "openclaw", "openclaw-gateway")
"""A plan's own command has flags of its own, and OpenClaw has permissions only in its configuration."""
TASK = Task(unit_id="docs/a", attempt_id="docs-a-1", prompt="say hi", cwd="/work")
BASE = {"PATH": "/bin", "HOME": "/home/me", "ANTHROPIC_API_KEY": "sk-1", "OPENAI_API_KEY": "sk-2"}


def with_prompt(prompt: str) -> Task:
    return msgspec.structs.replace(TASK, prompt=prompt)


def commanded(*command: str, prompt: str = "say hi") -> Task:
    return msgspec.structs.replace(TASK, command=command, prompt=prompt, model="opus")


def test_a_subscription_runs_without_the_keys_of_any_provider() -> None:
    run = prepare_session(load_agent("claude"), TASK, SUBSCRIPTION, BASE)

    assert not {"ANTHROPIC_API_KEY", "OPENAI_API_KEY"} & run.env.keys()
    assert run.withheld == ("ANTHROPIC_API_KEY", "OPENAI_API_KEY")


@pytest.mark.parametrize("agent", ["claude", "opencode", "command"])
def test_whatever_the_agent_is_every_key_that_its_profile_or_the_provider_names_is_removed(agent: str) -> None:
    profile = load_agent(agent)
    names = {*load_agent("claude").metered_variables, *profile.metered_variables}
    task = commanded("true")

    env = prepare_session(profile, task, SUBSCRIPTION, BASE | dict.fromkeys(names, "secret")).env

    assert not names & env.keys()


def test_a_metered_account_keeps_its_key() -> None:
    account = Account(name="work", provider="anthropic", key_env="ANTHROPIC_API_KEY")

    assert prepare_session(load_agent("claude"), TASK, account, BASE).env["ANTHROPIC_API_KEY"] == "sk-1"


def test_a_metered_account_without_its_key_is_refused() -> None:
    account = Account(name="work", provider="anthropic", key_env="WORK_KEY")

    with pytest.raises(InvalidInput, match="'work' takes its key from WORK_KEY, which is not set"):
        prepare_session(load_agent("claude"), TASK, account, BASE)


def test_a_subscription_that_sets_a_key_by_hand_contradicts_itself() -> None:
    account = msgspec.structs.replace(SUBSCRIPTION, env={"ANTHROPIC_API_KEY": "sk-3"})

    with pytest.raises(InvalidInput, match="'max-1' is a subscription, but its env sets ANTHROPIC_API_KEY"):
        prepare_session(load_agent("claude"), TASK, account, BASE)


def test_the_environment_is_the_base_then_the_profile_then_the_account_then_ours() -> None:
    base = BASE | {"CLAUDE_CODE_MAX_RETRIES": "99", "CLAUDE_CONFIG_DIR": "/elsewhere", "PACELINE_UNIT": "outer/unit"}

    env = prepare_session(load_agent("claude"), TASK, SUBSCRIPTION, base).env

    assert env["CLAUDE_CODE_MAX_RETRIES"] == "2"
    assert env["CLAUDE_CONFIG_DIR"] == "/home/me/.max-1"
    assert (env["PACELINE_UNIT"], env["PACELINE_ATTEMPT"]) == ("docs/a", "docs-a-1")
    assert env["PATH"] == "/bin"


def test_the_plan_adds_arguments_and_variables_last() -> None:
    task = msgspec.structs.replace(TASK, args=("--max-turns", "40"), env={"CLAUDE_CODE_MAX_RETRIES": "5", "LANG": "C"})

    run = prepare_session(load_agent("claude"), task, SUBSCRIPTION, BASE)

    assert run.argv[-2:] == ("--max-turns", "40")
    assert (run.env["CLAUDE_CODE_MAX_RETRIES"], run.env["LANG"]) == ("5", "C")
    assert run.env["PACELINE_UNIT"] == "docs/a"


def test_a_command_gets_the_arguments_of_the_plan() -> None:
    task = msgspec.structs.replace(commanded("lint", "{prompt}"), args=("--fix", "{id}"))

    assert prepare_session(load_agent("command"), task, None, BASE).argv == ("lint", "say hi", "--fix", "{id}")


def test_a_plan_that_sets_a_billing_variable_for_a_subscription_is_refused() -> None:
    task = msgspec.structs.replace(TASK, env={"CLAUDE_CODE_USE_BEDROCK": "1"})

    with pytest.raises(InvalidInput, match="a subscription, but the plan's env or env_pass gives its sessions CLAUDE"):
        prepare_session(load_agent("claude"), task, SUBSCRIPTION, BASE)


def test_permissions_become_flags_of_the_cli_before_the_arguments_of_the_plan() -> None:
    task = msgspec.structs.replace(TASK, permissions="edit", args=("--max-turns", "40"), conversation_id="s-1")

    argv = prepare_session(load_agent("codex"), task, None, BASE).argv

    assert argv == (
        *("codex", "exec", "--json", "--skip-git-repo-check"),
        *("-c", 'approval_policy="never"', "-c", 'sandbox_mode="workspace-write"', "--max-turns", "40"),
        *("resume", "s-1", "-"),
    )


def test_a_level_that_the_agent_does_not_know_is_refused() -> None:
    mine = msgspec.structs.replace(load_agent("aider"), name="mine", permissions={})

    with pytest.raises(InvalidInput, match="agent 'mine' has no flags for permissions = 'read'"):
        prepare_session(mine, msgspec.structs.replace(TASK, permissions="read"), None, BASE)


@pytest.mark.parametrize("agent", [name for name in agent_names() if name not in WITHOUT_PERMISSIONS])
@pytest.mark.parametrize("level", ["read", "edit", "full"])
def test_every_agent_has_flags_for_every_level_of_permissions(agent: str, level: str) -> None:
    task = msgspec.structs.replace(TASK, permissions=level)

    assert prepare_session(load_agent(agent), task, None, BASE).argv[0] == agent


def test_a_sub_agent_of_openclaw_is_followed_by_a_program_of_ours_with_the_token_of_its_account() -> None:
    account = Account(
        name="ops", provider="openclaw-gateway", key_env="OPS_TOKEN", env={"OPENCLAW_GATEWAY_AGENT": "ops"}
    )
    task = msgspec.structs.replace(TASK, model="openai/gpt-5")

    run = prepare_session(load_agent("openclaw-gateway"), task, account, BASE | {"OPS_TOKEN": "t-1"})

    assert (run.argv[0], run.argv[-2:], run.stdin) == (sys.executable, ("--model", "openai/gpt-5"), b"say hi")
    assert Path(run.argv[-3]).is_file()
    assert (run.env["OPENCLAW_GATEWAY_TOKEN"], run.env["OPENCLAW_GATEWAY_AGENT"]) == ("t-1", "ops")
    assert "t-1" not in " ".join(run.argv)


def test_the_token_of_the_usual_gateway_comes_from_the_environment() -> None:
    profile = load_agent("openclaw-gateway")

    run = prepare_session(profile, TASK, default_account(profile), BASE | {"OPENCLAW_GATEWAY_TOKEN": "t-1"})

    assert run.env["OPENCLAW_GATEWAY_TOKEN"] == "t-1"


def test_a_prompt_is_an_argument_only_for_an_agent_that_does_not_read_its_input() -> None:
    run = prepare_session(load_agent("aider"), TASK, None, BASE)

    assert run.argv[-2:] == ("--message", "say hi")
    assert (run.stdin, run.cwd) == (b"", "/work")


@pytest.mark.parametrize("agent", ["claude", "codex", "copilot", "gemini", "opencode", "qwen"])
@pytest.mark.parametrize("conversation_id", [None, "s-1"])
@pytest.mark.parametrize("prompt", ["say hi", "ü" * 500_000, "-rf is an option"])
def test_a_prompt_is_in_no_process_list(agent: str, conversation_id: str | None, prompt: str) -> None:
    task = msgspec.structs.replace(TASK, prompt=prompt, conversation_id=conversation_id)

    run = prepare_session(load_agent(agent), task, None, BASE)

    assert run.stdin == prompt.encode()
    assert not any(prompt in argument for argument in run.argv)
    assert any("s-1" in argument for argument in run.argv) == (conversation_id is not None)


def test_the_limit_counts_bytes() -> None:
    at_limit = prepare_session(load_agent("aider"), with_prompt("x" * LONGEST_ARGUMENT_BYTES), None, BASE)

    assert at_limit.stdin == b""
    with pytest.raises(InvalidInput, match="takes its prompt only as an argument"):
        prepare_session(load_agent("aider"), with_prompt("ü" * (LONGEST_ARGUMENT_BYTES // 2 + 1)), None, BASE)


def test_an_agent_that_cannot_read_stdin_refuses_a_long_prompt() -> None:
    with pytest.raises(InvalidInput, match="'aider' takes its prompt only as an argument"):
        prepare_session(load_agent("aider"), with_prompt("x" * 1_000_000), None, BASE)


@pytest.mark.parametrize("agent", ["claude", "command"])
def test_a_nul_is_refused_and_its_place_named(agent: str) -> None:
    with pytest.raises(InvalidInput, match="the prompt has a NUL character at position 3"):
        prepare_session(load_agent(agent), with_prompt("abc\0def"), None, BASE)


def test_half_a_character_is_refused() -> None:
    with pytest.raises(InvalidInput, match="not Unicode text at position 2"):
        prepare_session(load_agent("claude"), with_prompt("ab\ud800"), None, BASE)


def test_a_command_is_filled_in_and_keeps_its_own_braces() -> None:
    task = commanded("sh", "-c", "awk '{print}' ${FILE}", "{prompt}", "{id}", "{model}", "{session_id}", prompt="{id}")

    run = prepare_session(load_agent("command"), task, None, BASE)

    assert run.argv == ("sh", "-c", "awk '{print}' ${FILE}", "{id}", "a", "opus", "")
    assert run.stdin == b""


def test_a_command_that_does_not_name_the_prompt_finds_it_on_stdin() -> None:
    run = prepare_session(load_agent("command"), commanded("wc", "-c", prompt="ö" * 600_000), None, BASE)

    assert run.argv == ("wc", "-c")
    assert len(run.stdin) == 1_200_000


def test_a_command_with_a_prompt_that_is_too_long_is_refused_with_a_fix() -> None:
    with pytest.raises(InvalidInput, match=r"remove \{prompt\} from the command"):
        prepare_session(load_agent("command"), commanded("echo", "{prompt}", prompt="x" * 1_000_000), None, BASE)


def test_a_command_agent_without_a_command_is_refused() -> None:
    with pytest.raises(InvalidInput, match="needs a command in the plan"):
        prepare_session(load_agent("command"), TASK, None, BASE)
