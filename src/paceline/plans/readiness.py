"""Readiness for the night: would the agents be allowed to work in their folders, and do their logins last?

The answers come from the CLIs' own files, which are only read. They are hints, so they never refuse a plan.
Never here: what keeps a plan from starting (`preflight`), or who pays (`agents/cli_configuration`).
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from paceline.agents import AgentProfile
from paceline.agents.default_login import login_folder, vendor_of
from paceline.agents.model_names import model_problem
from paceline.core import ScopeStatus
from paceline.plans.advice import Advice
from paceline.plans.cli_files import inner_value, read_json, read_table
from paceline.plans.login_expiry import login_expiry
from paceline.plans.workspace_advice import workspace_advice
from paceline.settings import AccountSettings, Settings
from paceline.store import Campaign, UnitSpec

MOST_FOLDERS = 20
"""Folders that are checked: the same answer for hundreds of them helps nobody."""
_FLAGS = (
    *("--permission-mode", "--allowedTools", "--allowed-tools", "--settings", "--sandbox", "--approval-mode", "--yolo"),
    "--dangerously",
)
"""Arguments of a plan that set permissions by themselves."""
_SET_PERMISSIONS = 'set permissions = "edit" in the plan'


def campaign_advice(
    campaign: Campaign, units: Iterable[UnitSpec], settings: Settings, environ: Mapping[str, str]
) -> list[Advice]:
    """Check a campaign on each of its accounts and in each of its folders."""
    profile = settings.agent(campaign.agent)
    units = list(units)
    if not profile.start:  # a plan's own command: nobody knows whether it changes its folder
        return workspace_advice(campaign, units) if campaign.workspace is not None else []
    found = _model_advice(profile, campaign) + _output_advice(campaign, units) + workspace_advice(campaign, units)
    if campaign.permissions is None and campaign.workspace is None and not _sets_permissions(campaign.args):
        folders = list(dict.fromkeys(unit.cwd for unit in units))[:MOST_FOLDERS]
        for account in settings.campaign_accounts(campaign.agent, campaign.accounts):
            env = {**environ, **account.env, **campaign.env}
            found += _permission_advice(profile, account, env, folders)
    return list(dict.fromkeys(found))


def _model_advice(profile: AgentProfile, campaign: Campaign) -> list[Advice]:
    problem = model_problem(profile.name, campaign.model) if campaign.model is not None else None
    return [] if problem is None else [Advice(*problem)]


def _output_advice(campaign: Campaign, units: Sequence[UnitSpec]) -> list[Advice]:
    if campaign.permissions != "read" or not any(unit.output for unit in units):
        return []
    text = 'permissions = "read", but units have an output, which the agent cannot write'
    return [Advice(text, 'set permissions = "edit", or remove output')]


def _sets_permissions(args: Sequence[str]) -> bool:
    return any(part.startswith(_FLAGS) or "sandbox_mode" in part for part in args)


# -- what a CLI allows by default --------------------------------------------------------------------------


def _permission_advice(
    profile: AgentProfile, account: AccountSettings, env: Mapping[str, str], folders: Sequence[str]
) -> list[Advice]:
    program = os.path.basename(profile.start[0])
    config = Path(login_folder(vendor_of(profile), env))
    if program == "claude":
        return [advice for folder in folders for advice in _claude_advice(account, env, config, folder)]
    if program == "codex" and not read_table(config / "config.toml").get("sandbox_mode"):
        return [Advice(f"codex runs in a read-only sandbox on {account.id}: it can change no file", _SET_PERMISSIONS)]
    if program in ("gemini", "qwen"):
        home = Path(env.get("HOME") or os.path.expanduser("~"))
        settings = read_json(home / f".{program}" / "settings.json")
        if not (
            inner_value(settings, "general", "defaultApprovalMode") or inner_value(settings, "tools", "approvalMode")
        ):
            text = f"{program} denies every change in an unattended run on {account.id}"
            return [Advice(text, _SET_PERMISSIONS)]
    return []


def _claude_advice(account: AccountSettings, env: Mapping[str, str], config: Path, folder: str) -> list[Advice]:
    own = read_json(config / "settings.json")
    if inner_value(own, "permissions", "allow") or inner_value(own, "permissions", "defaultMode"):
        return []
    project = [Path(folder, ".claude", name) for name in ("settings.json", "settings.local.json")]
    allowing = [path for path in project if inner_value(read_json(path), "permissions", "allow")]
    if not allowing:
        return [Advice(f"claude denies every change in an unattended run on {account.id}", _SET_PERMISSIONS)]
    if _is_trusted(env, config, folder):
        return []
    text = f"claude on {account.id} was never trusted with {folder} and ignores permissions.allow of {allowing[0]}"
    where = f"CLAUDE_CONFIG_DIR={config} " if env.get("CLAUDE_CONFIG_DIR") else ""
    return [Advice(text, f"{_SET_PERMISSIONS}, or trust the folder once: cd {folder} && {where}claude")]


def _is_trusted(env: Mapping[str, str], config: Path, folder: str) -> bool:
    """Return whether the account's configuration trusts the folder, or one around it."""
    state = config / ".claude.json" if env.get("CLAUDE_CONFIG_DIR") else config.parent / ".claude.json"
    projects = inner_value(read_json(state), "projects")
    around = [Path(folder), *Path(folder).parents]
    return isinstance(projects, dict) and any(
        inner_value(projects, str(path), "hasTrustDialogAccepted") is True for path in around
    )


# -- logins ------------------------------------------------------------------------------------------------


def login_advice(account: AccountSettings, environ: Mapping[str, str], now: float) -> list[Advice]:
    """Return that the login or the key of an account has ended, or ends soon and is not renewed by itself."""
    expiry = login_expiry(account, environ)
    if expiry is None or not expiry.is_due(now):
        return []
    return [Advice(expiry.text(account.id, now), expiry.fix)]


def hold_advice(account: AccountSettings, status: ScopeStatus | None) -> list[Advice]:
    """Return that the account is held until a person lifts it. `status` is that of its scope."""
    if status is None or status.held is None:
        return []
    return [Advice(f"{account.id} is held: {status.held}", f"fix the cause, then: paceline restore {account.scope}")]
