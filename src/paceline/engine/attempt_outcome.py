"""When parked units go on: at the believed reset, and one of them earlier, to see whether the window has moved.

Here: times for units that wait for a window. Never here: whether they may then start; the Governor lets one canary
go first, whoever asks.
"""

from collections.abc import Iterable, Sequence

from paceline.agents.account import Account
from paceline.core import Governor, WindowStatus

TRUSTED_CONFIDENCE = 0.5


class Parking:
    """Remembers which account is about to be probed, so that only one unit is woken for it."""

    def __init__(self, governor: Governor) -> None:
        self._governor = governor
        self._probed_at: dict[str, float] = {}

    def opens_at(self, scopes: Sequence[str], now: float) -> float | None:
        """When the windows on the path are believed to be open again; None where none is closed."""
        return max((_believed(window) for window in self._closed(scopes, now)), default=None)

    def resume_at(self, account: str, scopes: Sequence[str], now: float) -> float | None:
        """The same for one more unit; the first on an account goes as early as the windows may be probed."""
        opens_at = self.opens_at(scopes, now)
        probe_at = max((window.probe_at or now for window in self._closed(scopes, now)), default=None)
        if opens_at is None or probe_at is None or probe_at >= opens_at:
            return opens_at
        if self._probed_at.get(account, now) > now:
            return opens_at
        self._probed_at[account] = probe_at
        return probe_at

    def _closed(self, scopes: Sequence[str], now: float) -> list[WindowStatus]:
        statuses = [self._governor.status(scope, now=now) for scope in scopes]
        windows = [window for status in statuses if status is not None for window in status.windows]
        return [window for window in windows if window.state == "closed"]


def accounts_within(scope: str, accounts: Iterable[Account]) -> list[str]:
    """The accounts that a window of the scope is about: all of a provider, or the one on the path."""
    return [
        account.name
        for account in accounts
        if scope == account.provider or f"{scope}/".startswith(f"{account.provider}/{account.name}/")
    ]


def _believed(window: WindowStatus) -> float:
    """The reset where it is trusted, else when it is next looked."""
    probe_at = window.probe_at or 0.0
    if window.resets_at is None or window.confidence < TRUSTED_CONFIDENCE:
        return probe_at
    return max(window.resets_at, probe_at)
