"""The rules that a campaign sets for the environment of its sessions."""

from paceline.agents.session_environment import EnvironmentRules
from paceline.store import Campaign


def environment_rules(campaign: Campaign, key_variables: frozenset[str]) -> EnvironmentRules:
    """Return the rules of a campaign, with the variables that hold the keys of accounts."""
    return EnvironmentRules(
        env_pass=campaign.env_pass,
        env_strict=campaign.env_strict,
        allow_metered=campaign.allow_metered,
        key_variables=key_variables,
    )
