"""Who would pay for the sessions of a campaign, and what they would not inherit, before anything starts.

Here: reading what the launch of each account in each folder would find. Never here: starting or storing anything.
"""

from collections.abc import Iterable, Mapping

import msgspec

from paceline.agents import Task, prepare_session
from paceline.agents.account import Account
from paceline.agents.cli_configuration import find_billing
from paceline.agents.session_environment import may_bill
from paceline.errors import InvalidInput
from paceline.plans.environment_rules import environment_rules
from paceline.plans.preflight import ANY_GATEWAY
from paceline.settings import Settings
from paceline.store import Campaign

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
    accounts: list[Account | None] = [
        account.account for account in settings.campaign_accounts(campaign.agent, campaign.accounts)
    ]
    withheld: set[str] = set()
    billing: dict[str, bool] = {}
    for account in accounts or [None]:
        is_accepted = may_bill(account, rules) and (account is None or account.is_implicit)
        for folder in list(dict.fromkeys(folders))[:MOST_FOLDERS]:
            task = Task(
                unit_id=campaign.name, attempt_id="check", prompt="", cwd=folder, model=campaign.model,
                command=campaign.command, permissions=campaign.permissions, args=campaign.args, env=campaign.env,
            )  # fmt: skip
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
