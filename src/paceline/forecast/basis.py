"""What a forecast rests on: how long units take, what quota windows hold, and which other campaigns compete.

Here: values read from the store, the settings and the present Governor; past work is what the stored events show. What
nothing is known of is assumed, and said to be. Never here: a simulation.
"""

import math
from collections.abc import Iterator, Mapping

import msgspec

from paceline.agents.account import Account
from paceline.core import Governor, WindowStatus
from paceline.core.gates.quota_window import LENGTH_SECONDS
from paceline.core.values.scopes import canonical_scope
from paceline.engine.settings import CampaignAccounts
from paceline.events import ATTEMPT_ENDS, ATTEMPT_STARTS, Event
from paceline.forecast.simulator import WindowSize, Work
from paceline.store import Campaign, Store

PAGE = 5_000
"""Events per read: a history of a million needs few reads."""
SHORTEST_WINDOW = 60.0
"""Length assumed for a window of unknown name that closed right after its first use."""
LAST_PERIODS = 3
"""Periods of a window that count: enough for a middle one, and recent enough for the present plan."""
SET_UP = "its workspace is set up"
"""The reason with which the engine ends an attempt that was only a setup."""
ASSUMED_SECONDS = 600.0
"""Duration of a unit before anything has run: an ordinary agent session. The forecast says that it is assumed."""
ASSUMED_BESIDE_SECONDS = 60.0
"""Duration of a setup and of a check before one has run: the tests of a repository of ordinary size."""
MOST_READ = 1000
"""Units whose conversations are measured: enough for a mean, and one page of the store."""


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
    """Past work: the done units, and what a period of each window held, by the scope of its account."""

    units: tuple[UnitHistory, ...] = ()
    windows: dict[str, list[WindowSize]] = {}

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


class _Attempt(msgspec.Struct):
    """A session on a path. One that has not ended counts up to the closing in question."""

    scope: str
    began: float
    ended: float = math.inf


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
    return History(units=tuple(units), windows=_spent(closings, attempts))


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


def _spent(closings: Mapping[tuple[str, str], list[_Closing]], attempts: list[_Attempt]) -> dict[str, list[WindowSize]]:
    """Return the middle one of the last periods, so that a period with use from elsewhere does not decide."""
    windows: dict[str, list[WindowSize]] = {}
    for (account, name), known in closings.items():
        held = [_held(account, name, closing, attempts) for closing in known[-LAST_PERIODS:]]
        by_size = sorted((each for each in held if each is not None), key=lambda each: each.session_seconds)
        if by_size:
            windows.setdefault(account, []).append(by_size[len(by_size) // 2])
    return windows


def _held(account: str, name: str, closing: _Closing, attempts: list[_Attempt]) -> WindowSize | None:
    """Return what sessions used between the opening and the closing of a window."""
    length = LENGTH_SECONDS.get(name)
    opened_at = closing.last_reset if length is None else closing.resets_at - length
    used = [
        (max(each.began, opened_at), min(each.ended, closing.at))
        for each in attempts
        if _account_of(each.scope) == account and each.ended > opened_at and each.began < closing.at
    ]
    held = sum(max(0.0, end - begin) for begin, end in used)
    if held <= 0:
        return None
    first = min(begin for begin, _ in used)
    length = length or max(SHORTEST_WINDOW, closing.resets_at - first)
    return WindowSize(name=name, session_seconds=held, length=length)


def _account_of(scope: str) -> str:
    return "/".join(scope.split("/")[:2])


def _events(store: Store) -> Iterator[Event]:
    after = 0
    while page := store.events(after=after, limit=PAGE):
        yield from (stored.event for stored in page)
        after = page[-1].id


class Basis(msgspec.Struct, frozen=True, kw_only=True):
    """The known facts, as the forecast reports them."""

    units: int
    unit_seconds: float
    tries_known: int
    known_from: str
    windows: dict[str, tuple[WindowSize, ...]]
    beside_seconds: float = 0.0
    """The mean time of a unit's setup and checks, which hold no place of a session."""
    is_beside_known: bool = True
    """Whether that was measured; else it is assumed."""
    context_tokens: int | None = None
    """The mean size of a conversation of the campaign, as far as its agents have reported any."""


class BasisReader:
    """The facts about campaigns of one store at one moment."""

    def __init__(self, store: Store, accounts: CampaignAccounts, governor: Governor, now: float) -> None:
        self._store = store
        self._accounts = accounts
        self._governor = governor
        self._now = now
        self._history = read_history(store)

    def of_plan(self, campaign: Campaign, units: int) -> tuple[Basis, Work]:
        """Return the basis of a campaign with so many units left, and its work."""
        known, known_from = self._known_units(campaign)
        checked = self._checked_units(campaign, known)
        return self._basis(_work(campaign, known, units, checked), known, known_from, checked)

    def of_replay(self, campaign: Campaign, known: tuple[UnitHistory, ...]) -> tuple[Basis, Work]:
        """Return the basis of a past run: the durations that its own units took, on whatever account."""
        return self._basis(_work(campaign, known, len(known), known), known, f"campaign {campaign.name}", known)

    def other_works(self, campaign: Campaign) -> list[Work]:
        """Return the stored campaigns with work left: they compete for the same pool."""
        works = []
        counts = self._store.counts()
        for other in self._store.campaigns():
            left = counts[other.name].todo + counts[other.name].running if other.name in counts else 0
            can_run = other.state == "active" and (not other.accounts or bool(usable_accounts(self._accounts, other)))
            if other.name != campaign.name and can_run and left:
                known, _ = self._known_units(other)
                works.append(_work(other, known, left, self._checked_units(other, known)))
        return works

    def _basis(
        self, work: Work, known: tuple[UnitHistory, ...], known_from: str, checked: tuple[UnitHistory, ...]
    ) -> tuple[Basis, Work]:
        basis = Basis(
            units=len(work.seconds),
            unit_seconds=sum(work.seconds) / max(1, len(work.seconds)),
            tries_known=len(known),
            known_from=known_from,
            windows=self._windows(),
            beside_seconds=work.beside_seconds,
            is_beside_known=not work.beside_seconds or any(unit.beside_seconds for unit in checked),
            context_tokens=self._context(work.campaign),
        )
        return basis, work

    def _context(self, campaign: Campaign) -> int | None:
        if all(each.name != campaign.name for each in self._store.campaigns()):
            return None
        units = self._store.units(campaign=campaign.name, limit=MOST_READ).units
        known = [unit.result.context_tokens for unit in units if unit.result.context_tokens is not None]
        return round(sum(known) / len(known)) if known else None

    def _known_units(self, campaign: Campaign) -> tuple[tuple[UnitHistory, ...], str]:
        accounts = usable_accounts(self._accounts, campaign)
        paths = tuple(canonical_scope("/".join(filter(None, (each.scope, campaign.model)))) for each in accounts)
        before = () if campaign.accounts else (f"agent:{campaign.agent}",)  # where earlier versions noted them
        return self._history.units_on((*paths, *before))

    def _checked_units(self, campaign: Campaign, known: tuple[UnitHistory, ...]) -> tuple[UnitHistory, ...]:
        """Return the units of campaigns with the same setup and check, on whatever account, or else the known ones."""
        work = _work_beside(campaign)
        alike = {each.name for each in self._store.campaigns() if _work_beside(each) == work}
        found = tuple(unit for unit in self._history.units if unit.unit.partition("/")[0] in alike)
        return found if any(unit.beside_seconds for unit in found) else known

    def _windows(self) -> dict[str, tuple[WindowSize, ...]]:
        """Return the windows of each account. What the Governor has learned outranks what past events show."""
        sizes: dict[str, tuple[WindowSize, ...]] = {}
        for account in self._accounts:
            found = {each.name: each for each in self._history.windows.get(account.scope, ())}
            status = self._governor.status(account.scope, now=self._now)
            for window in status.windows if status is not None else ():
                size, name = found.get(window.name), window.name
                if window.holds_seconds is not None and window.length is not None:
                    size = WindowSize(name=name, session_seconds=window.holds_seconds, length=window.length)
                if size is not None:
                    found[name] = _with_use(size, window, self._now)
            if found:
                sizes[account.id] = tuple(sorted(found.values(), key=lambda size: size.length))
        return sizes


def usable_accounts(accounts: CampaignAccounts, campaign: Campaign) -> list[Account]:
    """Return the accounts of the campaign that the present settings still have, or its agent's default login."""
    found = [accounts.of(campaign, each) for each in accounts.ids_of(campaign)]
    return [account for account in found if account is not None]


def _work_beside(campaign: Campaign) -> tuple[object, object]:
    return campaign.check, None if campaign.workspace is None else campaign.workspace.setup


def _work(campaign: Campaign, known: tuple[UnitHistory, ...], units: int, checked: tuple[UnitHistory, ...]) -> Work:
    """Return the work of so many units: each takes as long as a known one, in turn, or what is assumed."""
    # No unit is assumed to take longer than the timeout of its campaign.
    assumed = ASSUMED_SECONDS if campaign.timeout is None else min(ASSUMED_SECONDS, campaign.timeout)
    seconds = tuple(known[n % len(known)].seconds if known else assumed for n in range(units))
    return Work(campaign=campaign, seconds=seconds, beside_seconds=_beside_seconds(campaign, checked))


def _beside_seconds(campaign: Campaign, known: tuple[UnitHistory, ...]) -> float:
    """Return how long setup and checks of a unit take, as known of units that had any; 0 if it has neither."""
    has_setup = campaign.workspace is not None and bool(campaign.workspace.setup)
    if not campaign.check and not has_setup:
        return 0.0
    measured = [unit.beside_seconds for unit in known if unit.beside_seconds]
    if measured:
        return sum(measured) / len(measured)
    check = min(ASSUMED_BESIDE_SECONDS, campaign.check_timeout) if campaign.check else 0.0
    return check + (ASSUMED_BESIDE_SECONDS if has_setup else 0.0)


def _with_use(size: WindowSize, window: WindowStatus, now: float) -> WindowSize:
    """Add what is used of the open period, if its end is known."""
    resets_at = window.resets_at if window.expected_reset is None else window.expected_reset
    used = 1.0 if window.state == "closed" else min(1.0, window.best_ratio or 0.0)
    if resets_at is None or resets_at <= now:
        return size
    return msgspec.structs.replace(size, used_seconds=used * size.session_seconds, resets_at=resets_at)
