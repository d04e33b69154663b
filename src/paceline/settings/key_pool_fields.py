"""The fields of [key_pools.NAME]: how each is checked, and the rules over the accounts that they name.

Never here: which account of a pool serves a request.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from paceline.agents.account import Account
from paceline.errors import InvalidInput
from paceline.protocols import family_of
from paceline.settings import checks
from paceline.settings.documents import Check, did_you_mean
from paceline.settings.model import FallbackRoute

MOST_KEYS: Final = 100
"""Accounts of one pool. Each is checked for a request, and a provider's customer has a few keys."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_EXAMPLE = '[{ account = "key-c", model = "claude-haiku-4-5" }]'

Mistake = tuple[str, str]


def _account_names(value: object) -> tuple[str, ...]:
    names = checks.text_list(value, 'must be a list of accounts with at least one, such as ["key-a", "key-b"]')
    if len(names) > MOST_KEYS:
        raise InvalidInput(f"must have {MOST_KEYS} accounts at most")
    if twice := [each for number, each in enumerate(names) if each in names[:number]]:
        raise InvalidInput(f"names {twice[0]!r:.80} twice; remove one")
    return names


def _fallback(value: object) -> tuple[FallbackRoute, ...]:
    if not isinstance(value, list | tuple):
        raise InvalidInput(f"must be a list of routes, such as {_EXAMPLE}")
    return tuple(_route(each) for each in value)


def _route(value: object) -> FallbackRoute:
    if not isinstance(value, Mapping) or not {"account"} <= value.keys() <= {"account", "model"}:
        raise InvalidInput(f"must be a list of routes with an account, and a model if it is another: {_EXAMPLE}")
    account, model = value["account"], value.get("model")
    if not isinstance(account, str) or not (model is None or (isinstance(model, str) and model.strip())):
        raise InvalidInput(f"must name accounts and models as text: {_EXAMPLE}")
    if model is not None and not (model.isprintable() and model.isascii()):
        raise InvalidInput(f"has a model that is not plain text: {model!r:.80}")
    return FallbackRoute(account, model)


KEY_POOL_FIELDS: Final[Mapping[str, Check]] = {"accounts": _account_names, "fallback": _fallback}


def key_pool_mistakes(
    name: str,
    fields: Mapping[str, object],
    accounts: Mapping[str, Account],
    broken: Collection[str],
    written: Collection[str],
) -> Iterator[Mistake]:
    """Yield what is wrong with a pool: the key that it is about, and the message.

    `broken` are accounts with mistakes of their own, and `written` the keys that the table has, valid or not.
    """
    if not _NAME.fullmatch(name):
        yield "", f"{name!r:.80} cannot name a pool: use letters, digits, dots, dashes and underscores"
    if name in broken or name in (account.name for account in accounts.values()):
        yield "", f"key_pools.{name} has the name of an account, and both are /gateway/{name}/: rename the pool"
    if "accounts" not in written:
        yield "", f'key_pools.{name} needs accounts, such as accounts = ["key-a", "key-b"]'
    members, routes = fields.get("accounts", ()), fields.get("fallback", ())
    assert isinstance(members, tuple)
    assert isinstance(routes, tuple)
    found: list[Account] = []
    for key, member in (*(("accounts", each) for each in members), *(("fallback", each.account) for each in routes)):
        if member in broken:
            continue
        if (message := _member_mistake(member, accounts)) is not None:
            yield key, f"key_pools.{name}.{key}: {message}"
            continue
        account = accounts[member]
        found.append(account)
        if (message := _difference(found[0], account, is_fallback=key == "fallback")) is not None:
            yield key, f"key_pools.{name}.{key}: {message}"


def _member_mistake(member: str, accounts: Mapping[str, Account]) -> str | None:
    account = accounts.get(member)
    if account is None:
        metered = sorted(each.name for each in accounts.values() if each.kind == "metered")
        known = ", ".join(metered) or "none yet"
        hint = did_you_mean(member, metered)
        listed = f"{f'{hint} M' if hint else '; m'}etered accounts are: {known}"
        return f"there is no account {member!r:.80}{listed}. Add [accounts.NAME] first"
    if account.kind == "subscription":
        return f"{member} is a subscription, and the gateway takes API keys only; remove it, or name a metered account"
    return None


def _difference(first: Account, account: Account, *, is_fallback: bool) -> str | None:
    """Return why the account cannot serve the same requests as the first one of the pool."""
    if not is_fallback and account.provider != first.provider:
        return (
            f"{account.name} is of the provider {account.provider}, and {first.name} of {first.provider};"
            f" a pool has one provider: make a second pool, or name {account.name} in fallback"
        )
    own, wanted = family_of(account.provider), family_of(first.provider)
    if own != wanted:
        return (
            f"{account.name} speaks the protocol {own}, and {first.name} speaks {wanted};"
            f" name an account that speaks {wanted}"
        )
    return None
