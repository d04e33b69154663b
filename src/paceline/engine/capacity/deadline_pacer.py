"""The fewest concurrent sessions that meet a campaign's deadline, from unit durations and the size of windows.

Here: how many sessions are enough. Never here: which of them start; the Governor gets the number as a cap.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from paceline.core import Governor, ScopeStatus, WindowStatus
from paceline.core.gates.start_meters import StartCap
from paceline.engine.dispatch.placement import rough_span
from paceline.engine.dispatch.ticket_queues import session_scopes
from paceline.engine.settings import NO_ACCOUNT, CampaignAccounts
from paceline.store import Campaign, OutcomeRecord, Store, Unit, UnitCounts

if TYPE_CHECKING:
    from paceline.engine.session.live_session import LiveSession

MARGIN = 1.2
"""How much more work is planned for than the mean says: attempts differ in length, and some are repeated."""
WEIGHT_OF_NEWS = 0.2
"""Weight of the latest unit in the mean: higher follows a change sooner, lower is steadier."""
MOST_REMEMBERED = 1000
"""Finished units that the first mean is computed from: enough for a mean, and one page of the store."""
ROUNDING = 1e-9
"""Relative slack, so that work that fits exactly is not refused by rounding."""

Key = tuple[str, float]


class Quota(msgspec.Struct, frozen=True):
    """The part of a window for campaigns, in seconds of sessions: `left` until `resets_at`, then `size` per period."""

    left: float
    resets_at: float
    size: float
    length: float

    def usable(self, sessions: float, now: float, until: float) -> float:
        """Return the seconds that so many concurrent sessions get out of it. A spent window makes them wait."""
        first = min(until, self.resets_at) - now
        periods, rest = divmod(max(0.0, until - self.resets_at), self.length)
        later = periods * min(self.size, sessions * self.length) + min(self.size, sessions * rest)
        return min(self.left, sessions * first) + later


class DeadlinePacer:
    """Keeps the mean duration of each campaign's units, over all attempts of a unit, and caps campaigns by it."""

    def __init__(self, store: Store, governor: Governor, accounts: CampaignAccounts) -> None:
        self._store, self._governor, self._accounts = store, governor, accounts
        self._mean_seconds: dict[Key, float | None] = {}
        self._unfinished: dict[str, float] = {}
        self._paced: set[str] = set()

    def on_attempts(
        self, ended: Iterable[tuple["LiveSession", OutcomeRecord]], campaigns: Iterable[Campaign], now: float
    ) -> None:
        """Update unit durations and caps from finished attempts, before their slots are released."""
        for session, record in ended:
            if session.campaign.deadline is not None:
                self.on_attempt(session.campaign, session.unit, now, is_done=record.transition.step == "succeed")
            if record.transition.state != "todo":
                self._unfinished.pop(session.unit.id, None)  # a unit that is retried begins again
        self.set_paces(campaigns, now)

    def on_attempt(self, campaign: Campaign, unit: Unit, now: float, *, is_done: bool) -> None:
        """Add the duration of an attempt. The duration of its unit is known once the unit is done."""
        seconds = self._unfinished.pop(unit.id, 0.0) + now - (now if unit.started_at is None else unit.started_at)
        if is_done:
            mean = self._mean(campaign)
            self._mean_seconds[_key(campaign)] = seconds if mean is None else mean + WEIGHT_OF_NEWS * (seconds - mean)
        else:
            self._unfinished[unit.id] = seconds

    def set_paces(
        self, campaigns: Iterable[Campaign], now: float, counts: Mapping[str, UnitCounts] | None = None
    ) -> None:
        """Cap each campaign with a deadline at the fewest concurrent sessions that still meet it."""
        dated = [campaign for campaign in campaigns if campaign.deadline is not None]
        if dated and counts is None:
            counts = self._store.counts()
        paces = {each.name: self.pace(each, (counts or {}).get(each.name, UnitCounts()), now) for each in dated}
        for name in self._paced | paces.keys():
            self._governor.cap_starts(f"campaign:{name}", paces.get(name), now=now)
        self._paced = set(paces)

    def pace(self, campaign: Campaign, counts: UnitCounts, now: float) -> StartCap | None:
        """Return the cap, or None for none: no deadline, one that is missed or cannot be met, or no durations yet."""
        units, deadline = counts.todo + counts.running, campaign.deadline
        if deadline is None or deadline <= now or not units:
            return None
        mean = self._mean(campaign)
        if mean is None:
            return None
        work = units * mean * MARGIN
        needed = _needed(work, units, self._quotas(campaign, now) or [[]], now, deadline)
        if needed is None:
            return None
        when = f"{datetime.fromtimestamp(deadline, UTC):%Y-%m-%d %H:%M} UTC"
        left = f"{'1 unit is' if units == 1 else f'{units} units are'} left, about {rough_span(mean)} each"
        enough = "1 session at a time makes it" if needed == 1 else f"{needed} sessions at once make it"
        words = f"held to the pace of its deadline, {when}: {left}, and {enough}"
        return StartCap(words, deadline - work / needed, live=needed)

    def _quotas(self, campaign: Campaign, now: float) -> list[list[Quota]]:
        """Return the known windows of each account that the campaign runs on."""
        found: list[list[Quota]] = []
        for each in self._accounts.ids_of(campaign):
            account = self._accounts.of(campaign, each)
            if account is not None or each == NO_ACCOUNT:
                statuses = (self._governor.status(scope, now=now) for scope in session_scopes(campaign, account))
                windows = ((status, window) for status in statuses if status for window in status.windows)
                quotas = (_quota(status, window, now) for status, window in windows)
                found.append([quota for quota in quotas if quota is not None])
        return found

    def _mean(self, campaign: Campaign) -> float | None:
        """Return the mean duration of its units; at first from the units that earlier engines finished."""
        key = _key(campaign)
        if key not in self._mean_seconds:
            done = self._store.units(campaign=campaign.name, state="done", limit=MOST_REMEMBERED).units
            took = [u.ended_at - u.started_at for u in done if u.ended_at is not None and u.started_at is not None]
            self._mean_seconds[key] = sum(took) / len(took) if took else None
        return self._mean_seconds[key]


def _needed(work: float, units: int, quotas: Sequence[Sequence[Quota]], now: float, deadline: float) -> int | None:
    """Return the fewest sessions that finish the work although windows close, or None if no number does."""

    def done_by(sessions: int) -> float:
        each, flat = sessions / len(quotas), sessions / len(quotas) * (deadline - now)
        return sum(min((q.usable(each, now, deadline) for q in account), default=flat) for account in quotas)

    fewest = max(1, math.ceil(work / (deadline - now)))
    choices = range(fewest, units + 1)
    found = bisect_left(choices, work * (1 - ROUNDING), key=done_by)
    return choices[found] if found < len(choices) else None


def _key(campaign: Campaign) -> Key:
    """Return the key of a campaign. One that was deleted and added again under its name is another campaign."""
    return campaign.name, campaign.created_at


def _quota(status: ScopeStatus, window: WindowStatus, now: float) -> Quota | None:
    if window.holds_seconds is None or window.length is None:
        return None
    size = window.holds_seconds * (1.0 - status.reserve)
    resets_at = max(now, window.expected_reset if window.expected_reset is not None else now)
    left = 0.0 if window.state == "closed" else max(0.0, size - (window.best_ratio or 0.0) * window.holds_seconds)
    return Quota(left, resets_at, size, window.length)
