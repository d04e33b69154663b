"""What would spoil a night is known in the evening: permissions of each account in each folder, models, logins."""

import json
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from paceline.settings import Settings, load_settings
from paceline.settings.preflight import campaign_advice, login_advice
from paceline.store import Campaign, UnitSpec

NOW = 1_800_000_000.0
ALLOW = {"permissions": {"allow": ["Write"]}}


@pytest.fixture
def configured(tmp_path: Path) -> Settings:
    env = {"CLAUDE_CONFIG_DIR": str(tmp_path / "max")}
    account = {"provider": "anthropic", "kind": "subscription", "env": env}
    return load_settings(tmp_path, {"HOME": str(tmp_path)}, {"accounts": {"max-1": account}})


def write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def advice(settings: Settings, folder: Path, *, output: str | None = None, **fields: object) -> list[str]:
    campaign = Campaign(name="c", **({"agent": "claude", "accounts": ("max-1",)} | fields))  # type: ignore[arg-type]
    units = [UnitSpec(id="a", prompt="x", cwd=str(folder / "work"), output=output)]
    found = campaign_advice(campaign, units, settings, {"HOME": str(folder)})
    return [str(each).replace(str(folder), "~") for each in found]


def test_an_account_that_never_trusted_the_folder_is_named_with_a_fix(configured: Settings, tmp_path: Path) -> None:
    write(tmp_path / "work" / ".claude" / "settings.json", ALLOW)

    assert advice(configured, tmp_path) == [
        "claude on max-1 was never trusted with ~/work and ignores permissions.allow of ~/work/.claude/settings.json;"
        ' set permissions = "edit" in the plan, or trust the folder once: cd ~/work && CLAUDE_CONFIG_DIR=~/max claude'
    ]


@pytest.mark.parametrize("trusted", ["work", "."])
def test_a_trusted_folder_with_permissions_is_well(trusted: str, configured: Settings, tmp_path: Path) -> None:
    write(tmp_path / "work" / ".claude" / "settings.json", ALLOW)
    project = str((tmp_path / trusted).resolve())
    write(tmp_path / "max" / ".claude.json", {"projects": {project: {"hasTrustDialogAccepted": True}}})

    assert advice(configured, tmp_path) == []


def test_the_default_login_has_its_state_beside_its_folder(configured: Settings, tmp_path: Path) -> None:
    write(tmp_path / "work" / ".claude" / "settings.json", ALLOW)
    write(tmp_path / ".claude.json", {"projects": {str(tmp_path / "work"): {"hasTrustDialogAccepted": True}}})

    assert advice(configured, tmp_path, accounts=()) == []
    assert len(advice(configured, tmp_path)) == 1


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        ("claude", "claude denies every change in an unattended run on max-1"),
        ("codex", "codex runs in a read-only sandbox on openai/default: it can change no file"),
        ("gemini", "gemini denies every change in an unattended run on google/default"),
        ("qwen", "qwen denies every change in an unattended run on qwen/default"),
    ],
)
def test_a_cli_that_would_deny_every_change_is_named(
    agent: str, said: str, configured: Settings, tmp_path: Path
) -> None:
    accounts = ("max-1",) if agent == "claude" else ()

    assert advice(configured, tmp_path, agent=agent, accounts=accounts) == [
        f'{said}; set permissions = "edit" in the plan'
    ]
    assert advice(configured, tmp_path, agent=agent, accounts=accounts, permissions="edit") == []
    assert advice(configured, tmp_path, agent=agent, accounts=accounts, args=("--permission-mode", "plan")) == []


@pytest.mark.parametrize("agent", ["opencode", "copilot", "command"])
def test_agents_that_may_change_files_by_themselves_are_well(agent: str, configured: Settings, tmp_path: Path) -> None:
    assert advice(configured, tmp_path, agent=agent, accounts=()) == []


def test_what_the_person_allowed_for_all_folders_counts(configured: Settings, tmp_path: Path) -> None:
    write(tmp_path / "max" / "settings.json", ALLOW)
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "config.toml").write_text('sandbox_mode = "workspace-write"')

    assert advice(configured, tmp_path) == []
    assert advice(configured, tmp_path, agent="codex", accounts=()) == []


def test_an_agent_that_may_only_read_cannot_write_an_output(configured: Settings, tmp_path: Path) -> None:
    assert advice(configured, tmp_path, permissions="read") == []
    assert advice(configured, tmp_path, permissions="read", output="o.md") == [
        'permissions = "read", but units have an output, which the agent cannot write;'
        ' set permissions = "edit", or remove output'
    ]


def test_a_model_that_the_cli_does_not_know_is_named(configured: Settings, tmp_path: Path) -> None:
    assert advice(configured, tmp_path, permissions="edit", model="opus-4-6") == [
        'claude does not know the model \'opus-4-6\'; write model = "claude-opus-4-6", or an alias such as "opus"'
    ]


@pytest.mark.parametrize("content", ["{", "[]", '{"projects": 7}', '{"permissions": []}', "\0"])
def test_damaged_files_of_a_cli_never_raise(content: str, configured: Settings, tmp_path: Path) -> None:
    for path in (
        ".claude.json",
        "max/.claude.json",
        "max/settings.json",
        "max/.credentials.json",
        ".codex/config.toml",
    ):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(content)

    assert len(advice(configured, tmp_path)) == 1
    assert login_advice(configured.accounts["max-1"], {"HOME": str(tmp_path)}, NOW) == []


LOG_IN = "log in again with `claude /login`: the CLI cannot renew this login"


@pytest.mark.parametrize(
    ("left", "renewal", "said"),
    [
        (7200.0, None, f"the login of max-1 expires in 2 h; {LOG_IN}"),
        (6.9 * 86400, None, f"the login of max-1 expires in 7 days; {LOG_IN}"),
        (-1.0, None, f"the login of max-1 has expired; {LOG_IN}"),
        (7200.0, "refresh", None),
        (7.1 * 86400, None, None),
    ],
)
def test_a_login_that_ends_within_a_week_is_named(
    left: float, renewal: str | None, said: str | None, configured: Settings, tmp_path: Path
) -> None:
    login = {"expiresAt": (NOW + left) * 1000, "refreshToken": renewal}
    write(tmp_path / "max" / ".credentials.json", {"claudeAiOauth": login})

    found = login_advice(configured.accounts["max-1"], {"HOME": str(tmp_path)}, NOW)

    assert [str(each) for each in found] == ([] if said is None else [said])


@pytest.mark.parametrize(
    ("kind", "left", "said"),
    [
        ("subscription", 3 * 86400.0, "the login of max-1 expires in 3 days; get a new login, then change {}"),
        ("metered", -60.0, "the key of max-1 has expired; get a new key, then change {}"),
        ("metered", 8 * 86400.0, None),
    ],
)
def test_the_end_that_a_setting_names_wins(
    kind: Literal["subscription", "metered"], left: float, said: str | None, configured: Settings, tmp_path: Path
) -> None:
    write(tmp_path / "max" / ".credentials.json", {"claudeAiOauth": {"expiresAt": NOW * 1000}})
    account = msgspec.structs.replace(configured.accounts["max-1"], kind=kind, expires=NOW + left)

    found = login_advice(account, {"HOME": str(tmp_path)}, NOW)

    assert [str(each) for each in found] == ([] if said is None else [said.format("accounts.max-1.expires")])
