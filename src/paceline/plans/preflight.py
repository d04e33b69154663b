"""Preflight checks: whether a plan can run on this machine now. Programs, accounts, keys and folders.

Never here: starting or storing anything, or checks that need only the files (`read_plan`, `load_settings`).
"""

import os
import shutil
import sys
from collections.abc import Mapping

from paceline.agents import Account, AgentProfile, Task, prepare_session
from paceline.agents.account import GatewayAddress
from paceline.agents.session_environment import EnvironmentRules
from paceline.errors import InvalidInput, InvalidPlan, InvalidSettings
from paceline.plans.environment_rules import environment_rules
from paceline.plans.host_choice import may_run_here
from paceline.plans.plan_file import Plan
from paceline.settings import AccountSettings, Settings
from paceline.store import Campaign, Store, UnitSpec

INSTALL = {
    "claude": "npm install -g @anthropic-ai/claude-code",
    "codex": "npm install -g @openai/codex",
    "gemini": "npm install -g @google/gemini-cli",
    "openclaw": "npm install -g openclaw",
    "opencode": "npm install -g opencode-ai",
    "qwen": "npm install -g @qwen-code/qwen-code",
    "copilot": "npm install -g @github/copilot",
    "aider": "pip install aider-chat",
}
LOGIN_FILES = {"CLAUDE_CONFIG_DIR": (".credentials.json", "claude"), "CODEX_HOME": ("auth.json", "codex login")}
"""The file in which a CLI keeps its login on Linux, and the command that creates it. Other systems use a keychain."""
ANY_GATEWAY = GatewayAddress("http://127.0.0.1", "token")
"""An address for sessions that are only prepared, never started."""
TOKEN_VARIABLE = "CLAUDE_CODE_OAUTH_TOKEN"


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
        mistakes += _launch_troubles(environ, profile, plan.campaign, plan.units[:1], account.account, rules)
    first = accounts[0].account if accounts else None
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


def program_of(profile: AgentProfile, campaign: Campaign) -> str:
    return profile.start[0] if profile.start else campaign.command[0]


def _program_troubles(
    environ: Mapping[str, str], profile: AgentProfile, plan: Plan, accounts: list[AccountSettings]
) -> list[str]:
    program = program_of(profile, plan.campaign)
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
    places = dict.fromkeys(os.path.join(folder, program) for folder in folders)
    return [f"{place} is not an executable program" for place in places if not os.access(place, os.X_OK)][:5]


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
        task = Task(
            unit_id=f"{campaign.name}/{unit.id}",
            attempt_id="check",
            prompt=unit.prompt,
            cwd=unit.cwd,
            model=campaign.model,
            command=campaign.command,
            permissions=campaign.permissions,
            args=campaign.args,
            env=campaign.env,
        )
        try:
            prepare_session(profile, task, account, environ, ANY_GATEWAY, rules)
        except InvalidInput as error:
            text = str(error)
            troubles.append(text if text.startswith("account") else f"unit {unit.id!r}: {text}")
    return troubles[:20]


def account_troubles(account: AccountSettings, environ: Mapping[str, str]) -> list[str]:
    """Return mistakes of an account: variables that name missing folders, and keys that are not set."""
    troubles = []
    for variable, value in account.env.items():
        if variable.endswith(("_DIR", "_HOME")) and os.path.isabs(value) and not os.path.isdir(value):
            troubles.append(
                f"account {account.name!r}: {variable} names {value}, which does not exist"
                f"{_log_in(variable, value) or '; create the folder and log in with it'}"
            )
    if account.kind == "metered" and account.key_env and not environ.get(account.key_env):
        troubles.append(f"account {account.name!r} takes its key from {account.key_env}, which is not set")
    return troubles


def login_troubles(account: AccountSettings, environ: Mapping[str, str]) -> list[str]:
    """Return hints about a subscription whose folder has no login. They are guesses, so they never refuse a plan."""
    if account.kind != "subscription" or not sys.platform.startswith("linux"):
        return []
    if environ.get(TOKEN_VARIABLE) or TOKEN_VARIABLE in account.env:
        return []
    return [
        f"account {account.name!r} does not look logged in: there is no {LOGIN_FILES[variable][0]} in {value}"
        f"{_log_in(variable, value)}"
        for variable, value in account.env.items()
        if variable in LOGIN_FILES
        and os.path.isdir(value)
        and not os.path.exists(os.path.join(value, LOGIN_FILES[variable][0]))
    ]


def _log_in(variable: str, value: str) -> str:
    if variable not in LOGIN_FILES:
        return ""
    return f"; log in once: mkdir -p {value} && {variable}={value} {LOGIN_FILES[variable][1]}"
