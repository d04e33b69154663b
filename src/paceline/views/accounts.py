"""The accounts of settings and campaigns. Secrets stay where they are: only the names of variables are shown."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from paceline.core import ScopeStatus, WindowStatus
from paceline.plans.login_expiry import LoginExpiry, login_expiry
from paceline.settings import AccountSettings, Settings
from paceline.store import Campaign, KeyBudget, SpendRow
from paceline.store.client_keys import WARNING_SHARE
from paceline.views.gateway_calls import spend_since
from paceline.views.keys import SpendRows


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


class AccountBudget(msgspec.Struct, frozen=True, kw_only=True):
    """What calls of the gateway may cost on the account in a day (UTC), and what they have cost today."""

    budget: str
    spent: float
    is_near: bool
    """Whether 80 % of it are spent, or more."""
    is_reached: bool
    resumes_at: float | None
    """When calls continue, if it is reached."""


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
    daily_budget: AccountBudget | None = None


def account_budget(account: AccountSettings, rows: Iterable[SpendRow], now: float) -> AccountBudget | None:
    """Return the budget of the account and what it has spent by these rows of today, which may be of all accounts."""
    if account.daily_budget is None:
        return None
    budget = KeyBudget(account.daily_budget, "day")
    spent = sum(row.dollars for row in rows if row.account == account.name)
    is_reached = spent >= budget.dollars
    return AccountBudget(
        budget=budget.text,
        spent=round(spent, 6),
        is_near=spent >= WARNING_SHARE * budget.dollars,
        is_reached=is_reached,
        resumes_at=budget.begins_again_at(now) if is_reached else None,
    )


def account_views(
    accounts: Iterable[AccountSettings],
    environ: Mapping[str, str],
    statuses: Mapping[str, ScopeStatus],
    read_spend: SpendRows,
    unsaved: Sequence[SpendRow],
    now: float,
) -> list[AccountView]:
    """Return the accounts, with what each has spent of its budget. `statuses` are by scope."""
    found = list(accounts)
    today = spend_since("1d", now)
    has_budgets = any(each.daily_budget is not None for each in found)
    rows = [row for row in (*read_spend(since=today), *unsaved) if row.day == today] if has_budgets else []
    return [account_view(each, environ, statuses.get(each.scope), account_budget(each, rows, now)) for each in found]


def account_view(
    account: AccountSettings,
    environ: Mapping[str, str],
    status: ScopeStatus | None,
    budget: AccountBudget | None = None,
) -> AccountView:
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
        daily_budget=budget,
    )
