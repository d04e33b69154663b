"""Accounts, and the keys of clients, with what they have spent. Secrets are never shown, only names of variables."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from paceline.agents.account import Account, AccountFacts, LoginExpiry, login_expiry
from paceline.core import ScopeStatus, WindowStatus
from paceline.core.values.fields import fields_of
from paceline.engine.key_commands import present_keys
from paceline.settings import Settings
from paceline.store import Balances, Campaign, ClientKey, HashedKey, KeyBudget
from paceline.store.spend import WARNING_SHARE, KeyRules


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """The name of an environment variable and whether it is set; never its value."""

    name: str
    is_set: bool


def known_accounts(settings: Settings, campaigns: Iterable[Campaign]) -> list[Account]:
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


class AccountView(AccountFacts, frozen=True, kw_only=True):
    """An account, what holds it, its quota windows, and when its login or key ends, where that is known."""

    scope: str
    key: Variable | None
    env: list[Variable]
    held: str | None
    windows: tuple[WindowStatus, ...]
    expiry: LoginExpiry | None = None
    daily_budget: AccountBudget | None = None


def account_views(
    accounts: Iterable[Account],
    environ: Mapping[str, str],
    statuses: Mapping[str, ScopeStatus],
    balances: Balances,
    now: float,
) -> list[AccountView]:
    """Return the accounts, with what each has spent of its budget. `statuses` are by scope."""

    def view(account: Account) -> AccountView:
        key, status = account.key_env, statuses.get(account.scope)
        return AccountView(
            **fields_of(AccountFacts, account) | {"name": account.id},
            scope=account.scope,
            key=None if key is None else Variable(name=key, is_set=bool(environ.get(key))),
            env=[Variable(name=name, is_set=bool(value)) for name, value in account.env.items()],
            held=status.held if status is not None else None,
            windows=status.windows if status is not None else (),
            expiry=login_expiry(account, environ),
            daily_budget=_account_budget(account, balances, now),
        )

    return [view(each) for each in accounts]


def _account_budget(account: Account, balances: Balances, now: float) -> AccountBudget | None:
    if account.daily_budget is None:
        return None
    budget = KeyBudget(account.daily_budget, "day")
    spent = balances.of_account(account.name, budget, now)
    is_near = spent >= WARNING_SHARE * budget.dollars
    return AccountBudget(budget=budget.text, is_near=is_near, **_use(budget, spent, now))


def _use(budget: KeyBudget, spent: float, now: float) -> dict[str, Any]:
    is_reached = spent >= budget.dollars
    resumes_at = budget.begins_again_at(now) if is_reached else None
    return {"spent": round(spent, 6), "is_reached": is_reached, "resumes_at": resumes_at}


class KeyView(KeyRules, frozen=True, kw_only=True):
    """One key of a client.

    `spent` is what it has cost in the period of its budget, null without a budget. When that is reached, `resumes_at`
    is when it continues, null if it does not.
    """

    budget: str | None
    spent: float | None = None
    is_reached: bool = False
    resumes_at: float | None = None
    created_at: float
    revoked_at: float | None = None


class KeyList(msgspec.Struct, frozen=True, kw_only=True):
    """The keys that are not revoked."""

    keys: list[KeyView]


class NewKeyView(KeyView, frozen=True, kw_only=True):
    """A key that was just created, with its text, which is shown once."""

    key: str


class RevokedKeyView(KeyView, frozen=True, kw_only=True):
    """A key that no gateway accepts any more."""

    ok: bool = True


def key_list(keys: Iterable[HashedKey], balances: Balances, now: float) -> KeyList:
    """Return the keys that are not revoked, with what each has spent of its budget."""
    return KeyList(keys=[key_view(each.key, balances, now) for each in present_keys(keys)])


def key_view(record: ClientKey, balances: Balances, now: float) -> KeyView:
    budget = record.budget
    used = {} if budget is None else _use(budget, balances.of_key(record, budget, now), now)
    return KeyView(**_fields(record), **used)


def new_key_view(record: ClientKey, text: str) -> NewKeyView:
    return NewKeyView(**_fields(record), spent=None if record.budget is None else 0.0, key=text)


def revoked_key_view(record: ClientKey) -> RevokedKeyView:
    return RevokedKeyView(**_fields(record))


def _fields(record: ClientKey) -> dict[str, Any]:
    budget = None if record.budget is None else record.budget.text
    times = {"created_at": record.created_at, "revoked_at": record.revoked_at}
    return {**fields_of(KeyRules, record), **times, "budget": budget}
