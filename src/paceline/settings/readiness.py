"""Readiness for the night: would the agents be allowed to work in their folders, and do their logins last?

The answers come from the CLIs' own files, which `agents` reads. They are hints, so they never refuse a plan.
Never here: what keeps a plan from starting (`preflight`), or who pays (`agents/billing_check.py`).
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from paceline.agents import AgentProfile
from paceline.agents.account import Account, login_expiry
from paceline.agents.billing_check import unattended_problem
from paceline.agents.cli_facts import model_problem
from paceline.core import ScopeStatus
from paceline.errors import WorkspaceError
from paceline.settings.host_fields import may_run_here
from paceline.settings.model import Settings
from paceline.settings.plan_file import Plan
from paceline.settings.preflight import login_troubles
from paceline.store import Campaign, UnitSpec
from paceline.workspaces import count_uncommitted


class Advice(msgspec.Struct, frozen=True):
    """Something that would spoil the night, and what to do about it."""

    text: str
    fix: str

    def __str__(self) -> str:
        return f"{self.text}; {self.fix}"


MOST_FOLDERS = 20
"""Folders that are checked: the same answer for hundreds of them helps nobody."""
_FLAGS = (
    *("--permission-mode", "--allowedTools", "--allowed-tools", "--settings", "--sandbox", "--approval-mode", "--yolo"),
    "--dangerously",
)
"""Arguments of a plan that set permissions by themselves."""


def plan_warnings(plan: Plan, settings: Settings, environ: Mapping[str, str], now: float) -> list[str]:
    """Return what would keep the agents of a plan from their work, on each account and in each folder."""
    campaign = plan.campaign
    found: list[str] = []
    missing = missing_logins(campaign, settings, environ)
    if may_run_here(campaign.hosts, campaign.labels, settings):
        for account in settings.campaign_accounts(campaign.agent, campaign.accounts):
            found += missing.get(account.scope, [])
            found += [str(advice) for advice in login_advice(account, environ, now)]
    return found + [str(advice) for advice in campaign_advice(campaign, plan.units, settings, environ)]


def missing_logins(campaign: Campaign, settings: Settings, environ: Mapping[str, str]) -> dict[str, list[str]]:
    """Return why sessions that start here would find no login, by the scope of their account."""
    if not may_run_here(campaign.hosts, campaign.labels, settings):
        return {}
    found = {
        account.scope: login_troubles(account, {**environ, **campaign.env})
        for account in settings.campaign_accounts(campaign.agent, campaign.accounts)
        if not (account.is_implicit and campaign.allow_metered)
    }
    return {scope: troubles for scope, troubles in found.items() if troubles}


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
            problems = (unattended_problem(profile, env, folder, account.id) for folder in folders)
            found += [Advice(*problem) for problem in problems if problem is not None]
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


# -- logins ------------------------------------------------------------------------------------------------


def login_advice(account: Account, environ: Mapping[str, str], now: float) -> list[Advice]:
    """Return that the login or the key of an account has ended, or ends soon and is not renewed by itself."""
    expiry = login_expiry(account, environ)
    if expiry is None or not expiry.is_due(now):
        return []
    return [Advice(expiry.text(account.id, now), expiry.fix)]


def hold_advice(account: Account, status: ScopeStatus | None) -> list[Advice]:
    """Return that the account is held until a person lifts it. `status` is that of its scope."""
    if status is None or status.held is None:
        return []
    return [Advice(f"{account.id} is held: {status.held}", f"fix the cause, then: paceline restore {account.scope}")]


# -- the trees that units work in ------------------------------------------------------------------


def workspace_advice(campaign: Campaign, units: Sequence[UnitSpec]) -> list[Advice]:
    """Return what would surprise the user about the trees of a campaign whose agents edit files."""
    if campaign.workspace is not None:
        return [advice for top in campaign.workspace.bases for advice in _dirty_advice(top)]
    if campaign.permissions == "read" or campaign.max_sessions == 1:
        return []
    trees = Counter(_tree_of(cwd) for cwd in (unit.cwd for unit in units))
    return [
        Advice(
            f"{count} units share the tree {tree}: those that run at the same time overwrite each other's changes",
            'give each its own: add [campaign.workspace] with kind = "worktree", or set max_sessions = 1',
        )
        for tree, count in trees.items()
        if tree is not None and count > 1
    ]


def _dirty_advice(top: str) -> list[Advice]:
    try:
        count = count_uncommitted(top)
    except WorkspaceError:
        return []  # reading the plan has found this repository; the engine reports it if it is gone
    if not count:
        return []
    files = "1 file" if count == 1 else f"{count} files"
    return [
        Advice(f"{top} has uncommitted changes in {files}, which the workspaces do not contain", "commit them first")
    ]


def _tree_of(cwd: str) -> str | None:
    """Return the git work tree that the folder lies in, or None."""
    folder = os.path.realpath(cwd)
    while not os.path.exists(os.path.join(folder, ".git")):
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent
    return folder
