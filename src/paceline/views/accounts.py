"""The accounts of the settings. Secrets stay where they are: only the names of variables are shown."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from paceline.core import ScopeStatus, WindowStatus
from paceline.settings import AccountSettings


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """The name of an environment variable and whether it is set; never its value."""

    name: str
    is_set: bool


class AccountView(msgspec.Struct, frozen=True, kw_only=True):
    """An account, what holds it, and its quota windows."""

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


def account_view(account: AccountSettings, environ: Mapping[str, str], status: ScopeStatus | None) -> AccountView:
    """Return what people are shown of the account. `status` is that of its scope."""
    key = account.key_env
    return AccountView(
        name=account.name,
        provider=account.provider,
        kind=account.kind,
        scope=account.scope,
        reserve=account.reserve,
        base_url=account.base_url,
        key=None if key is None else Variable(name=key, is_set=bool(environ.get(key))),
        env=[Variable(name=name, is_set=bool(value)) for name, value in account.env.items()],
        held=status.held if status is not None else None,
        windows=status.windows if status is not None else (),
    )
