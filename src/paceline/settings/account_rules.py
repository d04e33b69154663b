"""Rules over several fields of one account. Never here: the check of a single field."""

from collections.abc import Iterator

from paceline.agents import Account, load_agent
from paceline.agents.session_environment import metered_variables
from paceline.agents.withheld_variables import matches_any
from paceline.settings.model import AccountSettings


def account_mistakes(name: str, account: AccountSettings) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the account: the key that it is about, and the message."""
    if account.kind != "subscription":
        return
    bare = Account(name=account.name, provider=account.provider, kind=account.kind)
    patterns = metered_variables(load_agent("command"), bare)
    if billed := sorted(name for name in account.env if matches_any(name, patterns)):
        yield (
            "env",
            f"accounts.{name}.env sets {', '.join(billed)}, which would be billed instead of the subscription;"
            ' remove it, or set kind = "metered"',
        )
    if account.daily_budget is not None:
        yield (
            "daily_budget",
            f"accounts.{name}.daily_budget counts calls of the gateway, which takes metered accounts only; remove it",
        )
    if account.via_gateway:
        yield (
            "via_gateway",
            f"accounts.{name}.via_gateway is for metered accounts: the gateway takes API keys, and a"
            " subscription is used through the vendor's own CLI; remove it",
        )
