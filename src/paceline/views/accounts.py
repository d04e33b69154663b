"""The accounts of settings and campaigns. Secrets stay where they are: only the names of variables are shown."""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from paceline.core import ScopeStatus, WindowStatus
from paceline.plans.login_expiry import LoginExpiry, login_expiry
from paceline.settings import AccountSettings, Settings
from paceline.store import Campaign


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """The name of an environment variable and whether it is set; never its value."""

    name: str
    is_set: bool


def known_accounts(settings: Settings, campaigns: Iterable[Campaign]) -> list[AccountSettings]:
    """Return the configured accounts, and the default logins that campaigns without accounts run on."""
    used = [
        account
        for campaign in campaigns
        if campaign.agent in settings.agent_names()
        for account in settings.campaign_accounts(campaign.agent, campaign.accounts)
    ]
    return list({account.id: account for account in (*settings.accounts.values(), *used)}.values())


class AccountView(msgspec.Struct, frozen=True, kw_only=True):
    """An account, what holds it, its quota windows, and when its login or key ends, where that is known."""

    name: str
    provider: str
    kind: Literal["subscription", "metered"]
    scope: str
    reserve: float
    base_url: str | None
    key: Variable | None
    env: list[Variable]
    held: str | None
    windows: tuple[WindowStatus, ...]
    expiry: LoginExpiry | None = None


def account_view(account: AccountSettings, environ: Mapping[str, str], status: ScopeStatus | None) -> AccountView:
    """Return what people are shown of the account. `status` is that of its scope."""
    key = account.key_env
    return AccountView(
        name=account.id,
        provider=account.provider,
        kind=account.kind,
        scope=account.scope,
        reserve=account.reserve,
        base_url=account.base_url,
        key=None if key is None else Variable(name=key, is_set=bool(environ.get(key))),
        env=[Variable(name=name, is_set=bool(value)) for name, value in account.env.items()],
        held=status.held if status is not None else None,
        windows=status.windows if status is not None else (),
        expiry=login_expiry(account, environ),
    )
