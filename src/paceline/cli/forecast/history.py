"""What the stored events tell of past work: how long units took, and how much a quota window held.

Values from the store only. Never here: a guess; what is not known is told as such.
"""

from collections.abc import Iterator

import msgspec

from paceline.events import TRY_ENDS, TRY_STARTS, Event
from paceline.store import Store

PAGE = 5_000


class WindowHistory(msgspec.Struct, frozen=True, kw_only=True):
    """What one window of an account held: so many seconds of sessions, and how long from first use to reset."""

    scope: str
    name: str
    session_seconds: float
    length: float


class UnitHistory(msgspec.Struct, frozen=True, kw_only=True):
    """A unit that was done: where, and how many seconds of sessions it took in all its tries."""

    unit: str
    scope: str
    seconds: float
    ended_at: float


class History(msgspec.Struct, frozen=True, kw_only=True):
    units: tuple[UnitHistory, ...] = ()
    windows: tuple[WindowHistory, ...] = ()

    def durations(self, scopes: tuple[str, ...]) -> tuple[tuple[float, ...], str]:
        """How long units took on one of these paths, else with the same model, else at all; and which it was."""
        models = {scope.rpartition("/")[2] for scope in scopes}
        for where, these in (
            (", ".join(scopes), [unit for unit in self.units if unit.scope in scopes]),
            (", ".join(sorted(models)), [unit for unit in self.units if unit.scope.rpartition("/")[2] in models]),
            ("all campaigns", list(self.units)),
        ):
            if these:
                return tuple(unit.seconds for unit in these), where
        return (), ""

    def window(self, scope: str) -> WindowHistory | None:
        """The last one that was spent on the account."""
        return next((window for window in reversed(self.windows) if window.scope == scope), None)


class _Account(msgspec.Struct):
    """What is used of the window that is open."""

    used: float = 0.0
    first_use: float | None = None


def read_history(store: Store, *, campaign: str | None = None) -> History:
    """From all events that are kept; of one campaign if it is named."""
    started: dict[str, Event] = {}
    seconds: dict[str, float] = {}
    accounts: dict[str, _Account] = {}
    units: list[UnitHistory] = []
    windows: list[WindowHistory] = []
    for event in _events(store):
        unit = event.unit or ""
        if event.name in TRY_STARTS:
            started[unit] = event
            account = accounts.setdefault(_account_of(event.scope or ""), _Account())
            account.first_use = event.at if account.first_use is None else account.first_use
        elif event.name in TRY_ENDS and unit in started:
            begun = started.pop(unit)
            ran = max(0.0, event.at - begun.at)
            seconds[unit] = seconds.get(unit, 0.0) + ran
            accounts[_account_of(begun.scope or "")].used += ran
            if event.name == "unit.done" and campaign in (None, unit.partition("/")[0]):
                units.append(
                    UnitHistory(unit=unit, scope=begun.scope or "", seconds=seconds.pop(unit), ended_at=event.at)
                )
        elif event.name == "window.closed":
            windows += _spent(event, accounts)
    return History(units=tuple(units), windows=tuple(windows))


def _spent(event: Event, accounts: dict[str, _Account]) -> Iterator[WindowHistory]:
    """A window that closed after having been used; its sessions that still run are not counted, which is cautious."""
    scope, resets_at = event.scope or "", event.fields.get("resets_at")
    account = accounts.pop(_account_of(scope), None)
    if account is not None and account.first_use is not None and account.used > 0 and isinstance(resets_at, float):
        yield WindowHistory(
            scope=_account_of(scope),
            name=str(event.fields.get("window")),
            session_seconds=account.used,
            length=max(60.0, resets_at - account.first_use),
        )


def _account_of(scope: str) -> str:
    return "/".join(scope.split("/")[:2])


def _events(store: Store) -> Iterator[Event]:
    after = 0
    while page := store.events(after=after, limit=PAGE):
        yield from (stored.event for stored in page)
        after = page[-1].id
