"""Preflight checks: whether a plan can run on this machine now, who would pay, and what would spoil the night.

Programs, accounts, keys and folders are checked. What would spoil the night comes from the CLIs' own files, which
`agents` reads: it is a hint, so it never refuses a plan. Never here: starting or storing anything, or checks that need
only the files (`read_plan`, `load_settings`).
"""

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from paceline.agents import AgentProfile, Task, prepare_session
from paceline.agents.account import Account, GatewayAddress, find_login, login_expiry
from paceline.agents.billing_check import find_billing, unattended_problem
from paceline.agents.cli_facts import INSTALL, model_problem
from paceline.agents.launch import EnvironmentRules, may_bill
from paceline.core import ScopeStatus
from paceline.core.values.fields import fields_of
from paceline.errors import InvalidInput, InvalidPlan, InvalidSettings, WorkspaceError
from paceline.settings.host_fields import may_run_here
from paceline.settings.model import Settings
from paceline.settings.plan_file import Plan, environment_rules
from paceline.store import Campaign, Store, UnitSpec
from paceline.workspaces import count_uncommitted

ANY_GATEWAY = GatewayAddress("http://127.0.0.1", "token")
"""An address for sessions that are only prepared, never started."""


def check_plan(plan: Plan, source: str, *, settings: Settings, environ: Mapping[str, str]) -> None:
    """Check a plan. Raise `InvalidPlan` with everything that keeps it from running on this machine.

    What other hosts have is known only to their workers, so a plan for them alone is not checked.
    """
    if not may_run_here(plan.campaign.hosts, plan.campaign.labels, settings):
        return
    profile = settings.agent(plan.campaign.agent)
    accounts = settings.campaign_accounts(plan.campaign.agent, plan.campaign.accounts)
    mistakes = _program_troubles(environ, profile, plan, accounts) + _stage_troubles(environ, plan.campaign)
    rules = environment_rules(plan.campaign, settings.key_variables)
    for account in accounts:
        mistakes += account_troubles(account, environ)
        mistakes += _launch_troubles(environ, profile, plan.campaign, plan.units[:1], account, rules)
    first = accounts[0] if accounts else None
    mistakes += _launch_troubles(environ, profile, plan.campaign, plan.units, first, rules)
    if mistakes:
        raise InvalidPlan(*(f"{source}: {mistake}" for mistake in dict.fromkeys(mistakes)))


def check_stored(store: Store, settings: Settings, *, serves_gateway: bool = True) -> None:
    """Check that the settings still have the agents and accounts of all campaigns with open units."""
    counts = store.counts()
    mistakes = []
    for campaign in store.campaigns():
        units = counts.get(campaign.name)
        if campaign.state == "cancelled" or units is None or not (units.todo or units.running):
            continue
        mistakes += [f"{campaign.name} {trouble}" for trouble in _missing(settings, campaign)]
        if not serves_gateway:
            check_gateway(settings, campaign)
    if mistakes:
        fix = "put it back into paceline.toml, or `paceline cancel` the campaign"
        raise InvalidSettings(*(f"the stored campaign {mistake}; {fix}" for mistake in mistakes))


def check_gateway(settings: Settings, campaign: Campaign) -> None:
    """Raise `InvalidSettings` if an account of the campaign needs the gateway, for an engine that serves none."""
    accounts = settings.campaign_accounts(campaign.agent, campaign.accounts)
    through = [account.id for account in accounts if account.via_gateway]
    if through:
        raise InvalidSettings(
            f"{campaign.name} runs on the account {through[0]!r}, whose sessions make their calls through the gateway,"
            " which only `paceline up` serves; start it and give it the plan with `paceline add`, or remove"
            " via_gateway from paceline.toml"
        )


def _missing(settings: Settings, campaign: Campaign) -> list[str]:
    troubles = [
        f"runs on the account {name!r}, which no longer exists"
        for name in campaign.accounts
        if settings.account(name) is None
    ]
    if campaign.agent not in settings.agent_names():
        troubles.append(f"uses the agent {campaign.agent!r}, which no longer exists")
    return troubles


def _program_troubles(
    environ: Mapping[str, str], profile: AgentProfile, plan: Plan, accounts: list[Account]
) -> list[str]:
    program = profile.start[0] if profile.start else plan.campaign.command[0]
    if "{" in program:
        return []
    if os.sep in program:
        return _path_troubles(program, plan.units)
    paths = {account.env.get("PATH") or environ.get("PATH", "") for account in accounts}
    if all(shutil.which(program, path=path) for path in paths or {environ.get("PATH", "")}):
        return []
    how = f"; install it: {INSTALL[program]}" if program in INSTALL else ""
    return [f"the agent {profile.name!r} needs the program {program!r}, which is not on your PATH{how}"]


def _stage_troubles(environ: Mapping[str, str], campaign: Campaign) -> list[str]:
    """Check the programs of setup, check and delivery, but for paths: those may lie in a workspace."""
    commands = {"check": campaign.check, "deliver": campaign.deliver if isinstance(campaign.deliver, tuple) else ()}
    commands["setup"] = () if campaign.workspace is None else campaign.workspace.setup
    path = campaign.env.get("PATH") or environ.get("PATH", "")
    return [
        f"{name} needs the program {command[0]!r}, which is not on your PATH"
        for name, command in commands.items()
        if command and os.sep not in command[0] and "{" not in command[0] and not shutil.which(command[0], path=path)
    ]


def _path_troubles(program: str, units: tuple[UnitSpec, ...]) -> list[str]:
    """Check a program named by a path, which is relative to the folder of each unit."""
    folders = dict.fromkeys(unit.cwd for unit in units)
    paths = dict.fromkeys(os.path.join(folder, program) for folder in folders)
    return [f"{path} is not an executable program" for path in paths if not os.access(path, os.X_OK)][:5]


def _launch_troubles(
    environ: Mapping[str, str],
    profile: AgentProfile,
    campaign: Campaign,
    units: tuple[UnitSpec, ...],
    account: Account | None,
    rules: EnvironmentRules,
) -> list[str]:
    """Return what keeps units from being started, found by preparing their sessions."""
    troubles = []
    for unit in units:
        task = _task(campaign, f"{campaign.name}/{unit.id}", unit.prompt, unit.cwd)
        try:
            prepare_session(profile, task, account, environ, ANY_GATEWAY, rules)
        except InvalidInput as error:
            text = str(error)
            troubles.append(text if text.startswith("account") else f"unit {unit.id!r}: {text}")
    return troubles[:20]


def _task(campaign: Campaign, unit_id: str, prompt: str, cwd: str) -> Task:
    return Task(
        unit_id=unit_id,
        attempt_id="check",
        prompt=prompt,
        cwd=cwd,
        **fields_of(Task, campaign),
    )


def account_troubles(account: Account, environ: Mapping[str, str]) -> list[str]:
    """Return mistakes of an account: variables that name missing folders, and keys that are not set."""
    troubles = []
    for variable, value in account.env.items():
        if variable.endswith(("_DIR", "_HOME")) and os.path.isabs(value) and not os.path.isdir(value):
            troubles.append(
                f"account {account.name!r}: {variable} names {value}, which does not exist"
                f"{_log_in(account, environ) or '; create the folder and log in with it'}"
            )
    if account.kind == "metered" and account.key_env and not environ.get(account.key_env):
        troubles.append(f"account {account.name!r} takes its key from {account.key_env}, which is not set")
    return troubles


def _log_in(account: Account, environ: Mapping[str, str]) -> str:
    login = find_login(account, environ)
    return "" if login is None or login.problem is None else f"; {login.problem.partition('; ')[2]}"


def login_troubles(account: Account, environ: Mapping[str, str]) -> list[str]:
    """Return that a subscription has no login here, and how to log in. It may be elsewhere, so no plan is refused."""
    login = None if account_troubles(account, environ) else find_login(account, environ)
    return [] if login is None or login.problem is None else [login.problem]


def troubles_here(account: Account, environ: Mapping[str, str]) -> list[str]:
    """Return the mistakes of an account; if it has none, that it has no login here."""
    return account_troubles(account, environ) or login_troubles(account, environ)


# -- who would pay, and what sessions would not inherit --------------------------------------------

MOST_FOLDERS = 50
"""Folders that are inspected per account: each costs some reads, and a plan may have thousands of units."""


class PayerCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What a campaign's sessions would not inherit (names only), and what would bill a key (file and key)."""

    withheld: list[str] = []
    billing: list[str] = []
    """Findings for which a unit would be held."""
    notes: list[str] = []
    """Findings that hold nothing."""


def check_payers(
    campaign: Campaign, folders: Iterable[str], settings: Settings, environ: Mapping[str, str]
) -> PayerCheck:
    """Inspect every account of the campaign in every folder."""
    profile = settings.agent(campaign.agent)
    rules = environment_rules(campaign, settings.key_variables)
    accounts: Sequence[Account | None] = settings.campaign_accounts(campaign.agent, campaign.accounts)
    withheld: set[str] = set()
    billing: dict[str, bool] = {}
    for account in accounts or [None]:
        is_accepted = may_bill(account, rules) and (account is None or account.is_implicit)
        for folder in list(dict.fromkeys(folders))[:MOST_FOLDERS]:
            task = _task(campaign, campaign.name, "", folder)
            try:
                session = prepare_session(profile, task, account, environ, ANY_GATEWAY, rules)
            except InvalidInput as error:
                billing[str(error)] = True
                continue
            withheld |= set(session.withheld)
            for finding in find_billing(profile, account, session, model=campaign.model):
                billing[finding.text] = finding.holds and not is_accepted
    return PayerCheck(
        withheld=sorted(withheld),
        billing=[text for text, holds in billing.items() if holds],
        notes=[text for text, holds in billing.items() if not holds],
    )


# -- what would spoil the night --------------------------------------------------------------------


class Advice(msgspec.Struct, frozen=True):
    """Something that would spoil the night, and what to do about it."""

    text: str
    fix: str

    def __str__(self) -> str:
        return f"{self.text}; {self.fix}"


MOST_ADVISED_FOLDERS = 20
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
    problem = model_problem(profile.name, campaign.model) if campaign.model is not None else None
    found = [] if problem is None else [Advice(*problem)]
    found += _output_advice(campaign, units) + workspace_advice(campaign, units)
    sets_permissions = any(part.startswith(_FLAGS) or "sandbox_mode" in part for part in campaign.args)
    if campaign.permissions is None and campaign.workspace is None and not sets_permissions:
        folders = list(dict.fromkeys(unit.cwd for unit in units))[:MOST_ADVISED_FOLDERS]
        for account in settings.campaign_accounts(campaign.agent, campaign.accounts):
            env = {**environ, **account.env, **campaign.env}
            problems = (unattended_problem(profile, env, folder, account.id) for folder in folders)
            found += [Advice(*problem) for problem in problems if problem is not None]
    return list(dict.fromkeys(found))


def _output_advice(campaign: Campaign, units: Sequence[UnitSpec]) -> list[Advice]:
    if campaign.permissions != "read" or not any(unit.output for unit in units):
        return []
    text = 'permissions = "read", but units have an output, which the agent cannot write'
    return [Advice(text, 'set permissions = "edit", or remove output')]


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
