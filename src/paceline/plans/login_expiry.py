"""When the login or the key of an account ends: by its settings, or by the file of its CLI.

Access tokens that a CLI renews by itself do not count: only an end that needs a person is one.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from paceline.agents.default_login import login_folder
from paceline.plans.cli_files import inner_value, read_json
from paceline.settings import AccountSettings

NOTICE_SECONDS = 7 * 86400.0
"""How long before its end a login is reported: a weekend and some working days, to get a new one in time."""
_HOUR, _DAY = 3600.0, 86400.0


class LoginExpiry(msgspec.Struct, frozen=True, kw_only=True):
    """When the login or the key of an account ends, and what a person can do about it."""

    what: Literal["login", "key"]
    at: float
    fix: str

    def is_due(self, now: float) -> bool:
        """Return whether it is to be reported: it has ended, or ends within a week."""
        return self.at - now <= NOTICE_SECONDS

    def text(self, account: str, now: float) -> str:
        """Return that it has ended, or when it will."""
        left = self.at - now
        if left <= 0:
            when = "has expired"
        else:
            when = f"expires in {left / _HOUR:.0f} h" if left < 2 * _DAY else f"expires in {left / _DAY:.0f} days"
        return f"the {self.what} of {account} {when}"


def login_expiry(account: AccountSettings, environ: Mapping[str, str]) -> LoginExpiry | None:
    """Return when the login of the account ends; None if that is not known, or if its CLI renews it."""
    if account.expires is not None:
        what: Literal["login", "key"] = "login" if account.kind == "subscription" else "key"
        fix = f"get a new {what}, then change accounts.{account.id}.expires"
        return LoginExpiry(what=what, at=account.expires, fix=fix)
    if account.kind != "subscription" or account.provider not in ("anthropic", "google"):
        return None
    folder = Path(login_folder(account.provider, {**environ, **account.env}))
    if account.provider == "anthropic":
        login = inner_value(read_json(folder / ".credentials.json"), "claudeAiOauth")
        ends_at, renewal, command = inner_value(login, "expiresAt"), inner_value(login, "refreshToken"), "claude /login"
    else:
        login = read_json(folder / "oauth_creds.json")
        ends_at, renewal, command = inner_value(login, "expiry_date"), inner_value(login, "refresh_token"), "gemini"
    if renewal or isinstance(ends_at, bool) or not isinstance(ends_at, int | float):
        return None
    fix = f"log in again with `{command}`: the CLI cannot renew this login"
    return LoginExpiry(what="login", at=ends_at / 1000, fix=fix)
