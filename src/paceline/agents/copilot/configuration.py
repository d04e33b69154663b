"""GitHub Copilot CLI: a provider of one's own (BYOK) is set by variables only; its files hold logins of the plan."""

from paceline.agents.surroundings import BillingFinding, Surroundings


def inspect(around: Surroundings) -> list[BillingFinding]:
    """Return what in the session's environment would bill a key. The environment is clean unless somebody set it."""
    names = ("COPILOT_PROVIDER_API_KEY", "COPILOT_PROVIDER_BEARER_TOKEN")
    return around.keys_in("the environment", dict(around.env), names)
