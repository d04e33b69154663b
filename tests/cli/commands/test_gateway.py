"""`gateway`: what calls cost, from the store where no daemon runs, and the variables for clients."""

import shutil
import subprocess
from typing import Literal

import pytest
from tests.cli.conftest import Workspace

from paceline.cli.commands.home import export_line
from paceline.core.values.session_output import Tokens
from paceline.daemon.home import open_home
from paceline.store import SpendRow

TOKENS = Tokens(input=12_400, output=812, cache_read=3_050_000)


def spend(*rows: SpendRow) -> None:
    with open_home() as home:
        home.store.add_spend(rows)


def row(key: str, model: str = "m", **sums: float) -> SpendRow:
    return SpendRow(day="2026-11-16", key=key, account="work", model=model, requests=2, tokens=TOKENS, **sums)  # type: ignore[arg-type]


def test_spend_is_printed_with_what_is_not_known(workspace: Workspace) -> None:
    spend(row("team", billed=1.5), row("team", "dear", unpriced=2), row("", estimated=1, imputed=0.25))

    printed = workspace.run("gateway", "spend", "--since", "2026-11-01").stdout

    lines = [" ".join(line.split()) for line in printed.splitlines()]
    assert lines == [
        "key calls input output cache read cache write cost",
        "team 4 24.8k 1.62k 6.10M 0 $1.50 billed or more",
        "- 2 12.4k 812 3.05M 0 $0.25 imputed",
        "total 6 37.2k 2.44k 9.15M 0 $1.50 billed + $0.25 imputed or more",
        "Since 2026-11-01 (UTC).",
        "Calls without a known cost: 2. Their model has no price ([prices] in paceline.toml), or their answers did not "
        "say their tokens.",
        "Calls with estimated tokens: 1. Their answers did not say all of them.",
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--by", "team"), "spend cannot be shown by 'team': use day, key, account or model"),
        (("--since", "last week"), "'last week' is no day: write one as"),
    ],
)
def test_a_question_that_cannot_be_understood_is_refused(
    workspace: Workspace, arguments: tuple[str, str], says: str
) -> None:
    refused = workspace.run("gateway", "spend", *arguments, code=2)

    assert says in refused.stderr.replace("\n", " ")


def test_a_call_that_no_daemon_knows_is_not_taken_for_a_unit(workspace: Workspace) -> None:
    said = " ".join(workspace.run("why", "req-1-1", code=2).stderr.split())

    assert "req-1-1 is a call of the gateway, and no daemon answers here" in said
    assert "unit" not in said


SETTINGS = """
[accounts.key-a]
provider = "anthropic"
kind = "metered"
key_env = "KEY_A"
[accounts.gpt]
provider = "openai"
kind = "metered"
key_env = "KEY_O"
[accounts.gem]
provider = "google"
kind = "metered"
key_env = "KEY_G"
[accounts.local]
provider = "vllm"
kind = "metered"
base_url = "http://127.0.0.1:8000"
[accounts.max-1]
provider = "anthropic"
kind = "subscription"
[key_pools.team]
accounts = ["key-a"]
"""
AT = "http://127.0.0.1:7433/gateway"


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("key-a", [f"export ANTHROPIC_BASE_URL={AT}/key-a", "export ANTHROPIC_API_KEY=TOKEN"]),
        ("team", [f"export ANTHROPIC_BASE_URL={AT}/team", "export ANTHROPIC_API_KEY=TOKEN"]),
        ("gpt", [f"export OPENAI_BASE_URL={AT}/gpt/v1", "export OPENAI_API_KEY=TOKEN"]),
        ("local", [f"export OPENAI_BASE_URL={AT}/local/v1", "export OPENAI_API_KEY=TOKEN"]),
        ("gem", [f"export GOOGLE_GEMINI_BASE_URL={AT}/gem", "export GEMINI_API_KEY=TOKEN"]),
    ],
)
def test_env_prints_the_variables_of_the_providers_sdks(workspace: Workspace, name: str, lines: list[str]) -> None:
    workspace.write("paceline.toml", SETTINGS)
    token = workspace.run("token").stdout.strip()

    printed = workspace.run("gateway", "env", name).stdout

    assert printed.replace(token, "TOKEN").splitlines() == lines


def test_env_for_fish_and_as_json_with_a_clients_key(workspace: Workspace) -> None:
    workspace.write("paceline.toml", SETTINGS)
    key = workspace.run_json("keys", "create", "search", "--pool", "team")["key"]

    fish = workspace.run("gateway", "env", "team", "--shell", "fish", "--key", key).stdout
    asked = workspace.run_json("gateway", "env", "team", "--key", key)

    assert fish == f"set -gx ANTHROPIC_BASE_URL '{AT}/team'\nset -gx ANTHROPIC_API_KEY '{key}'\n"
    assert asked == {
        "address": "team",
        "provider": "anthropic",
        "variables": {"ANTHROPIC_BASE_URL": f"{AT}/team", "ANTHROPIC_API_KEY": key},
    }


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("teem",),
            "the gateway has no account or pool 'teem'; did you mean \"team\"? It has: gem, gpt, key-a, local",
        ),
        (("max-1",), "max-1 is a subscription, and the gateway takes API keys only"),
        (("team", "--key", "sk-of-a-vendor"), "--key is no key of this gateway, or was revoked"),
        (("team", "--shell", "csh"), "csh"),
    ],
)
def test_env_refuses_what_the_gateway_would_refuse(workspace: Workspace, arguments: tuple[str, ...], says: str) -> None:
    workspace.write("paceline.toml", SETTINGS)

    refused = workspace.run("gateway", "env", *arguments, code=2)

    assert says in " ".join(refused.stderr.split())
    assert refused.stdout == ""


def test_env_refuses_a_key_for_another_address(workspace: Workspace) -> None:
    workspace.write("paceline.toml", SETTINGS)
    key = workspace.run_json("keys", "create", "search", "--pool", "team")["key"]

    refused = workspace.run("gateway", "env", "gpt", "--key", key, code=2)

    assert "the key search may use /gateway/team/ only; name team" in " ".join(refused.stderr.split())
    assert key not in refused.output


@pytest.mark.parametrize("value", ["plain", "a'b", "a b$HOME`x`", "back\\slash\\'", 'double"quote'])
@pytest.mark.parametrize("shell", ["sh", "fish"])
def test_a_value_reaches_the_shell_as_it_is(shell: Literal["sh", "fish"], value: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    lines = export_line("NAME", value, shell) + 'printf %s "$NAME"'

    printed = subprocess.run([program, "-c", lines], capture_output=True, text=True, check=True).stdout

    assert printed == value


def test_the_spend_of_a_key_that_never_was_is_an_error_that_names_the_keys(workspace: Workspace) -> None:
    none = workspace.run("gateway", "spend", "--key", "nosuch", code=2).stderr
    workspace.run("keys", "create", "docs")

    assert none == "Error: there is no key 'nosuch'; there are none yet\n"
    assert (
        "there is no key 'nosuch'; the keys are: docs"
        in workspace.run("gateway", "spend", "--key", "nosuch", code=2).stderr
    )
    assert "total" in workspace.run("gateway", "spend", "--key", "docs").stdout


@pytest.mark.parametrize("group", ["keys", "gateway"])
def test_a_group_without_a_command_prints_its_help(group: str, workspace: Workspace) -> None:
    assert f"Usage: paceline {group} [OPTIONS] COMMAND" in workspace.run(group, code=2).stdout
