"""GitHub Copilot CLI: a provider of one's own (BYOK) is set by variables only; its files hold logins of the plan."""

from paceline.agents.surroundings import Surroundings


def inspect(around: Surroundings) -> None:
    """Report what in the session's environment would bill a key. The environment is clean unless somebody set it."""
    names = ("COPILOT_PROVIDER_API_KEY", "COPILOT_PROVIDER_BEARER_TOKEN")
    around.report_keys("the environment", dict(around.env), names)
