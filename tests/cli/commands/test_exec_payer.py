"""`paceline exec`: an agent bills no key that its CLI is set up to bill; a plain program keeps its environment."""

import os

import pytest
from tests.cli.conftest import Workspace, finish

INIT = '{"type":"system","subtype":"init","session_id":"s","apiKeySource":"ANTHROPIC_API_KEY","model":"m"}'


def put_claude_on_path(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    workspace.write("claude", f"#!/bin/sh\n{script}\n").chmod(0o755)
    monkeypatch.setenv("PATH", f"{workspace.folder}:{os.environ['PATH']}")


def test_an_agent_whose_settings_bill_a_key_is_not_started(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_claude_on_path(workspace, monkeypatch, "echo started")
    (workspace.folder / ".claude").mkdir()
    workspace.write(".claude/settings.json", '{"env": {"ANTHROPIC_API_KEY": "sk-secret"}}')

    code, out, err = finish(workspace.start("exec", "--", "claude", "--model", "opus-4-6"))

    assert (code, out) == (2, "")
    assert ".claude/settings.json: env.ANTHROPIC_API_KEY would bill this key" in err
    assert "sk-secret" not in err


def test_an_agent_that_says_it_bills_a_key_is_stopped(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    put_claude_on_path(workspace, monkeypatch, f"echo '{INIT}'; exec sleep 60")

    code, _, err = finish(workspace.start("exec", "--", "claude", "--model", "opus-4-6"))

    assert code == 128 + 15
    assert "stopped: claude bills a key" in err


def test_a_plain_program_keeps_the_environment_but_for_the_keys_of_accounts(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.write("paceline.toml", '[accounts.key]\nprovider = "acme"\nkind = "metered"\nkey_env = "ACME_LOGIN"')
    for name in ("GITHUB_TOKEN", "ACME_LOGIN"):
        monkeypatch.setenv(name, "x")
    show = 'echo "$GITHUB_TOKEN:$ACME_LOGIN"'

    assert finish(workspace.start("exec", "--", "sh", "-c", show))[1] == "x:\n"
    assert finish(workspace.start("exec", "--env-pass", "ACME_*", "--", "sh", "-c", show))[1] == "x:x\n"
