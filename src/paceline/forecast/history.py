"""Past work as the stored events show it: how long units took, and how much a quota window held.

Here: values from the store. Never here: a guess about what is not known.
"""

import math
from collections.abc import Iterator, Mapping

import msgspec

from paceline.core.gates.quota_window import LENGTH_SECONDS
from paceline.events import ATTEMPT_ENDS, ATTEMPT_STARTS, Event
from paceline.store import Store

PAGE = 5_000
"""Events per read: a history of a million needs few reads."""
SHORTEST_WINDOW = 60.0
"""Length assumed for a window of unknown name that closed right after its first use."""
LAST_PERIODS = 3
"""Periods of a window that count: enough for a middle one, and recent enough for the present plan."""


SET_UP = "its workspace is set up"
"""The reason with which the engine ends an attempt that was only a setup."""


class WindowHistory(msgspec.Struct, frozen=True, kw_only=True):
    """What one window of an account held: seconds of sessions, and its length from opening to reset."""

    scope: str
    name: str
    session_seconds: float
    length: float


class UnitHistory(msgspec.Struct, frozen=True, kw_only=True):
    """A done unit: where it ran, and how many seconds of sessions all its attempts took.

    `beside_seconds` is the time of its setup, checks and delivery, which hold no place of a session.
    """

    unit: str
    scope: str
    began_at: float
    ended_at: float
    seconds: float = 0.0
    beside_seconds: float = 0.0


class History(msgspec.Struct, frozen=True, kw_only=True):
    units: tuple[UnitHistory, ...] = ()
    windows: tuple[WindowHistory, ...] = ()

    def units_on(self, scopes: tuple[str, ...]) -> tuple[tuple[UnitHistory, ...], str]:
        """Return the units that ran on one of these paths, else with the same model, else anywhere; and where."""
        models = {scope.rpartition("/")[2] for scope in scopes}
        for where, these in (
            (", ".join(scopes), [unit for unit in self.units if unit.scope in scopes]),
            (", ".join(sorted(models)), [unit for unit in self.units if unit.scope.rpartition("/")[2] in models]),
            ("all campaigns", list(self.units)),
        ):
            if these:
                return tuple(these), where
        return (), ""

    def windows_of(self, scope: str) -> tuple[WindowHistory, ...]:
        """Return what a period of each window of the account held."""
        return tuple(window for window in self.windows if window.scope == scope)


class _Attempt(msgspec.Struct):
    """A session on a path. One that has not ended counts up to the closing in question."""

    scope: str
    began: float
    ended: float = math.inf

    @property
    def account(self) -> str:
        return _account_of(self.scope)


class _Closing(msgspec.Struct, frozen=True):
    at: float
    resets_at: float
    last_reset: float
    """Reset of the period before, if known. It is the opening of a window whose name does not say its length."""


def read_history(store: Store, *, campaign: str | None = None) -> History:
    """Read the history from all kept events. With `campaign`, only units of that campaign count."""
    running: dict[str, _Attempt] = {}
    known: dict[str, UnitHistory] = {}
    attempts: list[_Attempt] = []
    units: list[UnitHistory] = []
    closings: dict[tuple[str, str], list[_Closing]] = {}
    for event in _events(store):
        unit = event.unit or ""
        if event.name in ATTEMPT_STARTS:
            running[unit] = _Attempt(event.scope or "", event.at)
            attempts.append(running[unit])
        elif event.name == "unit.checked" and unit in running:
            checked_for = event.fields.get("seconds")
            began = event.at - (checked_for if isinstance(checked_for, int | float) else 0.0)
            running[unit].ended = max(running[unit].began, min(running[unit].ended, began))
        elif event.name in ATTEMPT_ENDS and unit in running:
            attempt = running.pop(unit)
            if event.fields.get("reason") == SET_UP:
                attempt.ended = attempt.began
            attempt.ended = min(attempt.ended, max(attempt.began, event.at))
            known[unit] = _with_attempt(known.get(unit), unit, attempt, event.at)
            if event.name == "unit.done" and campaign in (None, unit.partition("/")[0]):
                units.append(known.pop(unit))
        elif event.name == "window.closed":
            _note_closing(event, closings)
    return History(units=tuple(units), windows=tuple(_spent(closings, attempts)))


def _with_attempt(known: UnitHistory | None, unit: str, attempt: _Attempt, now: float) -> UnitHistory:
    """Return what is known of a unit with one more attempt. What follows the session holds no place of it."""
    known = known or UnitHistory(unit=unit, scope="", began_at=attempt.began, ended_at=now)
    return msgspec.structs.replace(
        known,
        scope=attempt.scope,
        ended_at=now,
        seconds=known.seconds + attempt.ended - attempt.began,
        beside_seconds=known.beside_seconds + max(0.0, now - attempt.ended),
    )


def _note_closing(event: Event, closings: dict[tuple[str, str], list[_Closing]]) -> None:
    """Add the closing of a window, unless a refused canary repeats a known one."""
    resets_at, name = event.fields.get("resets_at"), str(event.fields.get("window"))
    if not isinstance(resets_at, float) or resets_at > event.at + LENGTH_SECONDS.get(name, math.inf):
        return  # unknown, or wrong: no reset is further away than the length of its window
    known = closings.setdefault((_account_of(event.scope or ""), name), [])
    last_reset = known[-1].resets_at if known else -math.inf
    if event.at >= last_reset:
        known.append(_Closing(event.at, resets_at, last_reset))


def _spent(closings: Mapping[tuple[str, str], list[_Closing]], attempts: list[_Attempt]) -> Iterator[WindowHistory]:
    """Return the middle one of the last periods, so that a period with use from elsewhere does not decide."""
    for (account, name), known in closings.items():
        held = [_held(account, name, closing, attempts) for closing in known[-LAST_PERIODS:]]
        by_size = sorted((each for each in held if each is not None), key=lambda each: each.session_seconds)
        if by_size:
            yield by_size[len(by_size) // 2]


def _held(account: str, name: str, closing: _Closing, attempts: list[_Attempt]) -> WindowHistory | None:
    """Return what sessions used between the opening and the closing of a window."""
    length = LENGTH_SECONDS.get(name)
    opened_at = closing.last_reset if length is None else closing.resets_at - length
    used = [
        (max(each.began, opened_at), min(each.ended, closing.at))
        for each in attempts
        if each.account == account and each.ended > opened_at and each.began < closing.at
    ]
    held = sum(max(0.0, end - begin) for begin, end in used)
    if held <= 0:
        return None
    first = min(begin for begin, _ in used)
    length = length or max(SHORTEST_WINDOW, closing.resets_at - first)
    return WindowHistory(scope=account, name=name, session_seconds=held, length=length)


def _account_of(scope: str) -> str:
    return "/".join(scope.split("/")[:2])


def _events(store: Store) -> Iterator[Event]:
    after = 0
    while page := store.events(after=after, limit=PAGE):
        yield from (stored.event for stored in page)
        after = page[-1].id
