"""The CLIs' own configuration, inspected before a session starts: would it bill a key, or deny all work?

Here: whose configuration is inspected, and what becomes of a finding. Never here: the configuration of one CLI, which
its folder reads, or the environment that a session gets (`launch.py`).
"""

import functools
import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType

from paceline.agents.account import Account
from paceline.agents.launch import AGENT_OF_PROVIDER, EnvironmentRules, PreparedSession, key_variable, may_bill
from paceline.agents.profile import AgentProfile
from paceline.agents.surroundings import BillingFinding, Surroundings
from paceline.errors import WouldBillKey

_MOST_NAMED = 3
"""Findings in one message: more would not fit a line."""


def find_billing(
    profile: AgentProfile,
    account: Account | None,
    session: PreparedSession,
    *,
    model: str | None = None,
    root: str = "/",
) -> list[BillingFinding]:
    """Return what in the configuration of the session's CLI would bill a key that is not the account's own.

    A metered account without `key_env` bills whatever its CLI is set up to bill, so there is nothing to find.
    """
    is_metered = account is not None and account.kind == "metered" and not account.is_implicit
    own_key = session.env.get(key_variable(profile, account)) if account is not None and is_metered else None
    if is_metered and not own_key:
        return []
    inspect = _inspector(_program(profile, account, session))
    if inspect is None:
        return []
    around = Surroundings(
        env=session.env,
        cwd=session.cwd,
        argv=session.argv,
        model=model,
        own_key=own_key,
        is_metered=is_metered,
        root=root,
    )
    inspect(around)
    return around.found


def refuse_billing(
    profile: AgentProfile,
    account: Account | None,
    session: PreparedSession,
    rules: EnvironmentRules,
    *,
    model: str | None = None,
) -> None:
    """Raise `WouldBillKey`, naming file and key, if the CLI is set up to bill a key that the session must not bill."""
    is_metered = account is not None and account.kind == "metered" and not account.is_implicit
    if may_bill(account, rules) and not is_metered:
        return
    found = [finding for finding in find_billing(profile, account, session, model=model) if finding.holds]
    if found:
        raise WouldBillKey(f"not started: {billing_text(found)}; {_fix(account)}")


def billing_text(found: list[BillingFinding]) -> str:
    """Return the findings as one line."""
    more = f" (and {len(found) - _MOST_NAMED} more)" if len(found) > _MOST_NAMED else ""
    return "; ".join(finding.text for finding in found[:_MOST_NAMED]) + more


def _fix(account: Account | None) -> str:
    if account is None or account.is_implicit:
        return "remove it there, or accept it: allow_metered = true in the plan, --allow-metered for exec"
    if account.kind == "metered":
        return f"remove it there: account {account.name!r} has its own key in {account.key_env}"
    return f"remove it there, or use a metered account: {account.name!r} is a subscription"


def _program(profile: AgentProfile, account: Account | None, session: PreparedSession) -> str:
    """Return the CLI that the session starts. A command on an account is taken for the CLI of its provider."""
    program = os.path.basename(session.argv[0]) if session.argv else ""
    if _inspector(program) is not None or profile.start:
        return program if _inspector(program) is not None else profile.name
    return AGENT_OF_PROVIDER.get(account.provider, "") if account is not None else ""


def _inspector(program: str) -> Callable[[Surroundings], None] | None:
    return getattr(_configuration(program), "inspect", None)


@functools.cache
def _configuration(program: str) -> ModuleType | None:
    if not program or not (Path(__file__).parent / program / "configuration.py").is_file():
        return None
    return import_module(f"paceline.agents.{program}.configuration")


def unattended_problem(
    profile: AgentProfile, env: Mapping[str, str], folder: str, account: str
) -> tuple[str, str] | None:
    """Return why an unattended session could change no file in the folder, by its CLI's own settings, and the fix."""
    find = getattr(_configuration(os.path.basename(profile.start[0])), "unattended_problem", None)
    problem: tuple[str, str] | None = None if find is None else find(Surroundings(env=env, cwd=folder), account)
    return problem
