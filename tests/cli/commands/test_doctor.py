"""`paceline doctor`: what is wrong is named with how to fix it, and the exit code says so."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.cli.conftest import Workspace

from paceline.core.signals import BillingStop
from paceline.daemon.home import open_home
from paceline.engine.capacity.governor_state import save_governor

SUBSCRIPTION = (
    '[accounts.max-1]\nprovider = "anthropic"\nkind = "subscription"\nenv = { CLAUDE_CONFIG_DIR = "~/.max" }\n'
)


pytestmark = pytest.mark.usefixtures("bare_path")  # no agent of this machine is found


def install(folder: Path, name: str, script: str) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.fixture
def logged_in(workspace: Workspace) -> None:
    """Log in to the default logins of Claude Code and Codex."""
    workspace.write(".claude/.credentials.json", "{}")
    workspace.write(".codex/auth.json", "{}")


def default_logins(workspace: Workspace, code: int) -> dict[str, tuple[str, str]]:
    findings = workspace.run_json("doctor", code=code)["findings"]
    return {each["what"]: (each["verdict"], each["detail"]) for each in findings if each["what"].endswith("/default")}


def test_a_default_login_is_looked_for_where_its_cli_keeps_it(workspace: Workspace, bare_path: Path) -> None:
    folder = workspace.folder
    for name in ("claude", "codex", "opencode"):
        install(bare_path, name, "echo 9.9.9")
    missing = "account '{}/default' is not logged in: there is no {} in {}"
    claude = missing.format("anthropic", ".credentials.json", folder / ".claude")
    codex = missing.format("openai", "auth.json", folder / ".codex")
    unknown = ("note", "subscription of opencode; its login was not checked")

    nowhere = default_logins(workspace, 1)
    workspace.write(".claude/.credentials.json", "{}")
    in_one = default_logins(workspace, 0)

    assert nowhere == {
        "anthropic/default": ("wrong", claude),
        "openai/default": ("wrong", codex),
        "opencode/default": unknown,
    }
    found = f"subscription of anthropic, its login is in {folder}/.claude/.credentials.json (it was not tried)"
    assert in_one == {
        "anthropic/default": ("ok", found),
        "openai/default": ("note", codex),
        "opencode/default": unknown,
    }


def test_a_bare_machine_is_well(workspace: Workspace) -> None:
    said = workspace.run("doctor").stdout

    assert "Nothing that was checked is wrong." in said
    assert "no paceline.toml: the defaults are used" in said
    assert "GB free" in said


@pytest.mark.usefixtures("logged_in")
def test_an_agent_is_shown_with_its_version(workspace: Workspace, bare_path: Path) -> None:
    install(bare_path, "claude", r"printf '9.9.9 \033[31m(Claude Code)\n'")

    findings = {each["what"]: each for each in workspace.run_json("doctor")["findings"]}
    assert findings["claude"]["verdict"] == "ok"
    assert "9.9.9" in findings["claude"]["detail"]
    assert "\x1b" not in workspace.run("doctor").stdout


def test_a_subscription_without_its_cli_and_login_is_wrong(workspace: Workspace) -> None:
    workspace.write("paceline.toml", SUBSCRIPTION)

    said = workspace.run("doctor", code=1).stdout

    assert "npm install -g @anthropic-ai/claude-code" in said
    assert "log in once: mkdir -p" in said
    assert "2 to fix." in said


@pytest.mark.parametrize("agent", ["claude", "opencode", "aider"])
def test_an_account_whose_agent_is_not_installed_is_wrong(workspace: Workspace, agent: str) -> None:
    provider = {"claude": "anthropic"}.get(agent, agent)
    workspace.write("paceline.toml", f'[accounts.mine]\nprovider = "{provider}"\nkind = "subscription"\n')

    found = {each["what"]: each for each in workspace.run_json("doctor", code=1)["findings"]}

    assert (found[agent]["verdict"], found[agent]["detail"]) == (
        "wrong",
        f"{agent} is not on PATH, and an account needs it",
    )


def test_a_login_and_a_cli_make_it_well_and_the_key_is_reported(
    workspace: Workspace, bare_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.write("paceline.toml", SUBSCRIPTION)
    install(bare_path, "claude", "echo 9.9.9")
    (workspace.folder / ".max").mkdir()
    assert "is not logged in: there is no" in workspace.run("doctor", code=1).stdout
    (workspace.folder / ".max" / ".credentials.json").touch()
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")

    said = workspace.run("doctor").stdout

    assert "ANTHROPIC_API_KEY is set here; sessions of max-1 do not get it" in said
    assert "sk-secret" not in said


def test_two_accounts_with_one_login_are_reported(workspace: Workspace, bare_path: Path) -> None:
    install(bare_path, "claude", "echo 2.1.325")
    account = '[accounts.{}]\nprovider = "anthropic"\nkind = "subscription"\n'
    workspace.write("paceline.toml", account.format("one") + account.format("two"))

    findings = workspace.run_json("doctor", code=1)["findings"]

    (found,) = [each["detail"] for each in findings if "one login" in each["detail"]]
    assert found.startswith(f"one and two are one login, in {workspace.folder}/.claude, ")


def test_a_metered_account_needs_its_key(workspace: Workspace) -> None:
    workspace.write("paceline.toml", '[accounts.key]\nprovider = "acme"\nkind = "metered"\nkey_env = "ACME_KEY"')

    assert "ACME_KEY, which is not set" in workspace.run("doctor", code=1).stdout


def test_a_broken_file_is_reported_line_by_line(workspace: Workspace) -> None:
    workspace.write("paceline.toml", "[pool]\nsesions = 4\n[engine]\nheartbeat = 0")

    said = workspace.run("doctor", code=1).stdout

    assert "paceline.toml:2" in said
    assert "paceline.toml:4" in said


def test_a_home_that_cannot_be_made_is_reported(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = workspace.write("file", "")
    monkeypatch.setenv("PACELINE_HOME", str(blocked / "home"))

    assert "set PACELINE_HOME to a folder of yours" in workspace.run("doctor", code=1).stdout
    assert "cannot create" in workspace.run("list", code=1).stderr


def test_a_home_that_was_open_to_others_is_reported_and_private_from_then_on(workspace: Workspace) -> None:
    home = workspace.folder / "home"
    (home / "spool").mkdir(parents=True, exist_ok=True)
    home.chmod(0o755)
    (home / "spool").chmod(0o777)

    said = workspace.run("doctor").stdout

    assert said.count("was open to other users of this machine; it is private now") == 2
    assert "was open to other users" not in workspace.run("doctor").stdout


def test_a_link_in_place_of_the_home_is_reported(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    (workspace.folder / "elsewhere").mkdir()
    (workspace.folder / "link").symlink_to("elsewhere")
    monkeypatch.setenv("PACELINE_HOME", str(workspace.folder / "link"))

    assert "is a symbolic link to" in workspace.run("doctor", code=1).stdout
    assert "is a symbolic link to" in workspace.run("list", code=1).stderr


@pytest.mark.usefixtures("logged_in")
def test_a_cli_older_than_what_was_tested_is_reported_with_the_version_to_install(
    workspace: Workspace, bare_path: Path
) -> None:
    install(bare_path, "codex", "echo codex-cli 0.12.0")

    finding = {each["what"]: each for each in workspace.run_json("doctor")["findings"]}["codex"]

    assert (finding["verdict"], finding["mend"]) == ("note", "npm install -g @openai/codex@0.166.0")
    assert "it is older than every tested version" in finding["detail"]


@pytest.mark.usefixtures("logged_in")
@pytest.mark.parametrize("script", ["echo Codex, your agent", "exit 1"])
def test_a_cli_whose_version_cannot_be_read_is_reported_as_perhaps_too_old(
    script: str, workspace: Workspace, bare_path: Path
) -> None:
    install(bare_path, "codex", script)

    finding = {each["what"]: each for each in workspace.run_json("doctor")["findings"]}["codex"]

    assert finding["verdict"] == "note"
    assert finding["detail"].endswith("it may be older than what was tested")
    assert finding["mend"] == f"compare `{bare_path}/codex --version` with 0.166.0, the newest version that is tested"


@pytest.mark.usefixtures("logged_in")
def test_a_claude_code_that_node_20_got_is_reported(workspace: Workspace, bare_path: Path) -> None:
    install(bare_path, "claude", "echo 2.1.197 '(Claude Code)'")

    finding = {each["what"]: each for each in workspace.run_json("doctor")["findings"]}["claude"]

    assert finding["verdict"] == "note"
    assert "Node.js 22 or newer: on an older one npm installs an older version" in finding["mend"]


def test_a_held_account_and_a_login_that_ends_are_wrong_and_come_with_the_command_that_helps(
    workspace: Workspace, bare_path: Path
) -> None:
    workspace.write("paceline.toml", SUBSCRIPTION)
    install(bare_path, "claude", "echo 9.9.9")
    (workspace.folder / ".max").mkdir()
    login = {"claudeAiOauth": {"accessToken": "secret-token", "expiresAt": 1000}}
    (workspace.folder / ".max" / ".credentials.json").write_text(json.dumps(login))
    with open_home() as home:
        governor = home.offline_state(0.0).governor
        governor.report("anthropic/max-1", BillingStop(detail="it bills a key"), now=0.0)
        save_governor(home.store, governor)

    said = workspace.run("doctor", code=1).stdout

    assert "max-1 is held:" in said
    assert "paceline restore anthropic/max-1" in said
    assert "the login of max-1 has expired" in said
    assert "log in again with `claude /login`: the CLI cannot renew this login" in said
    assert "secret-token" not in said


@pytest.mark.parametrize(("days", "verdict"), [(9, None), (5, "note"), (0.5, "wrong"), (-1, "wrong")])
def test_a_key_with_a_known_end_is_noted_a_week_before_and_wrong_in_the_last_night(
    days: float, verdict: str | None, workspace: Workspace, bare_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = datetime.now(UTC) + timedelta(days=days)
    monkeypatch.setenv("WORK_KEY", "sk-1")
    account = '[accounts.work]\nprovider = "anthropic"\nkind = "metered"\nkey_env = "WORK_KEY"\n'
    workspace.write("paceline.toml", f"{account}expires = {ends:%Y-%m-%dT%H:%M:%SZ}\n")

    findings = json.loads(workspace.run("doctor", "--json", code=1 if verdict == "wrong" else 0).stdout)["findings"]
    status = workspace.run("status").stdout

    assert [each["verdict"] for each in findings if each["what"] == "accounts"] == (
        [] if verdict is None else [verdict]
    )
    lines = [line for line in status.splitlines() if line.startswith("anthropic/work")]
    assert ["get a new key, then change accounts.work.expires" in line for line in lines] == [True] * (days < 7)
    assert (" expired " in status) is (days < 0)


def test_a_stored_campaign_that_would_be_denied_every_change_is_reported(workspace: Workspace, bare_path: Path) -> None:
    workspace.write("paceline.toml", SUBSCRIPTION)
    install(bare_path, "claude", "echo 9.9.9")
    (workspace.folder / ".max").mkdir()
    (workspace.folder / ".max" / ".credentials.json").touch()
    head = '[campaign]\nname = "docs"\nagent = "claude"\naccounts = ["max-1"]\nmodel = "opus-4-6"\n'
    plan = workspace.write("docs.toml", head + '[[unit]]\nid = "a"\nprompt = "x"\n')
    workspace.run("add", plan)

    findings = [each for each in workspace.run_json("doctor")["findings"] if each["what"] == "docs"]

    assert [(each["verdict"], each["detail"]) for each in findings] == [
        ("note", "claude does not know the model 'opus-4-6'"),
        ("note", "claude denies every change in an unattended run on max-1"),
    ]
    preview = workspace.run_json("preview", plan)
    assert [warning.partition(";")[0] for warning in preview["warnings"]] == [each["detail"] for each in findings]
    assert "warning: claude does not know the model 'opus-4-6'" in workspace.run("preview", plan).stdout


def test_an_address_that_up_would_not_serve_is_reported(workspace: Workspace) -> None:
    workspace.write("paceline.toml", '[api]\nhost = "0.0.0.0"\n')
    open_to_all = workspace.run("doctor").stdout
    workspace.write("paceline.toml", '[api]\ntls_cert = "none.pem"\n')
    without_file = workspace.run("doctor", code=1).stdout

    assert "note address         api.host = '0.0.0.0' can be reached from other machines, without TLS" in open_to_all
    assert f"BAD  certificate     api.tls_cert: {workspace.folder}/none.pem cannot be read" in without_file
