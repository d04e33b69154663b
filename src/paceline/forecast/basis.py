"""What a forecast rests on: how long units take, what quota windows hold, and which other campaigns compete.

Here: values read from the store, the settings and the present Governor. Never here: a simulation.
"""

import msgspec

from paceline.agents.account import Account
from paceline.core import Governor, WindowStatus
from paceline.core.values.scopes import canonical_scope
from paceline.engine.settings import CampaignAccounts
from paceline.forecast.history import UnitHistory, WindowHistory, read_history
from paceline.forecast.simulator import WindowSize, Work
from paceline.store import Campaign, Store

ASSUMED_SECONDS = 600.0
"""Duration of a unit before anything has run: an ordinary agent session. The forecast says that it is assumed."""
ASSUMED_BESIDE_SECONDS = 60.0
"""Duration of a setup and of a check before one has run: the tests of a repository of ordinary size."""


MOST_READ = 1000
"""Units whose conversations are measured: enough for a mean, and one page of the store."""


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

    def of_replay(self, campaign: Campaign) -> tuple[Basis, Work]:
        """Return the basis of a past run: the durations that its own units took, on whatever account."""
        known = read_history(self._store, campaign=campaign.name).units
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
            status = self._governor.status(account.scope, now=self._now)
            learned = {window.name: window for window in (status.windows if status is not None else ())}
            found = {
                each.name: _observed_size(each, learned.get(each.name), self._now)
                for each in self._history.windows_of(account.scope)
            }
            for name, window in learned.items():
                if (size := _learned_size(window, self._now)) is not None:
                    found[name] = size
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
    assumed = _assumed_seconds(campaign)
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


def _assumed_seconds(campaign: Campaign) -> float:
    """Return the assumed duration of a unit, which is never longer than the timeout of its campaign."""
    return ASSUMED_SECONDS if campaign.timeout is None else min(ASSUMED_SECONDS, campaign.timeout)


def _learned_size(window: WindowStatus, now: float) -> WindowSize | None:
    if window.holds_seconds is None or window.length is None:
        return None
    size = WindowSize(name=window.name, session_seconds=window.holds_seconds, length=window.length)
    return _with_use(size, window, now)


def _observed_size(history: WindowHistory, window: WindowStatus | None, now: float) -> WindowSize:
    size = WindowSize(name=history.name, session_seconds=history.session_seconds, length=history.length)
    return size if window is None else _with_use(size, window, now)


def _with_use(size: WindowSize, window: WindowStatus, now: float) -> WindowSize:
    """Add what is used of the open period, if its end is known."""
    resets_at = window.resets_at if window.expected_reset is None else window.expected_reset
    used = 1.0 if window.state == "closed" else min(1.0, window.best_ratio or 0.0)
    if resets_at is None or resets_at <= now:
        return size
    return msgspec.structs.replace(size, used_seconds=used * size.session_seconds, resets_at=resets_at)
