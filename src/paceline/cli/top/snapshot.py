"""One look at a home: the values that the view shows, read from the store as `status`, `list` and `limits` do.

Here: values. Never here: how they look, or anything that changes the store.
"""

from collections.abc import Iterator

import msgspec

from paceline.cli.commands.status import LimitRow, Status, limit_rows, read_status
from paceline.cli.commands.stored_state import campaign_state, last_event_id
from paceline.cli.progress import read_waits, wait_words
from paceline.cli.wiring import Home
from paceline.core import Deferred, ScopeStatus, WindowStatus
from paceline.core.values.scopes import is_provider_scope
from paceline.engine.dispatcher import split_line
from paceline.engine.offline_state import OfflineState
from paceline.store import Campaign, StoredEvent, UnitCounts
from paceline.views.throughput import Pace

KEPT_EVENTS = 1000
PAGE = 1000


class CampaignRow(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign and how far it is. `window` is the spent window that holds it, `note` what else does."""

    campaign: Campaign
    state: str
    counts: UnitCounts
    total: int
    eta: float | None
    window: tuple[str, WindowStatus] | None
    note: str

    @property
    def name(self) -> str:
        return self.campaign.name

    @property
    def failed(self) -> int:
        return self.counts.quarantined + self.counts.held


class ScopeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A scope; `queue` is the number of units that wait and could start there."""

    limit: LimitRow
    queue: int


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """Everything but the units, which are paged."""

    at: float
    status: Status
    done_last_hour: int
    eta: float | None
    campaigns: tuple[CampaignRow, ...]
    scopes: tuple[ScopeRow, ...]
    events: tuple[StoredEvent, ...]
    """Those since the look before."""


class Looker:
    """Looks again and again, and remembers which events it has seen."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._pace = Pace(home.store)
        self._seen = max(0, last_event_id(home) - KEPT_EVENTS)

    def look(self, now: float) -> Picture:
        home = self._home
        self._pace.catch_up(now)
        offline = home.offline_state(now)
        status = read_status(home, offline)
        counts = home.store.counts()
        campaigns = tuple(self._campaign_rows(offline, counts, now))
        active = [
            (campaign.name, counts.get(campaign.name, UnitCounts()))
            for campaign in offline.campaigns.values()
            if campaign.state == "active"
        ]
        rate = self._pace.rate_of_all({name: each.todo + each.running for name, each in active}, now)
        return Picture(
            at=now,
            status=status,
            done_last_hour=rate.per_hour,
            eta=rate.eta,
            campaigns=campaigns,
            scopes=tuple(_scope_rows(home, offline, now)),
            events=tuple(self._new_events()),
        )

    def _new_events(self) -> Iterator[StoredEvent]:
        while events := self._home.store.events(after=self._seen, limit=PAGE):
            self._seen = events[-1].id
            yield from events
            if len(events) < PAGE:
                return

    def _campaign_rows(self, offline: OfflineState, counts: dict[str, UnitCounts], now: float) -> Iterator[CampaignRow]:
        statuses = {status.scope: status for status in offline.governor.statuses(now=now)}
        waits = read_waits(self._home)
        for campaign in offline.campaigns.values():
            count = counts.get(campaign.name, UnitCounts())
            scopes = _scopes_of(offline, campaign, self._home)
            left = count.todo + count.running if campaign.state == "active" else 0
            yield CampaignRow(
                campaign=campaign,
                state=campaign_state(campaign, count),
                counts=count,
                total=count.todo + count.running + count.done + count.quarantined + count.held + count.cancelled,
                eta=self._pace.rate(campaign.name, left, now).eta,
                window=_spent_window(scopes, statuses) if count.todo else None,
                note=_note(campaign, count, scopes, statuses, waits, now),
            )


# -- what holds a campaign -------------------------------------------------------------------------


def _scopes_of(offline: OfflineState, campaign: Campaign, home: Home) -> list[str]:
    """Every scope that one of its sessions would occupy, the provider's own ones last."""
    known = [home.settings.accounts.get(name) for name in campaign.accounts or ("",)]
    scopes = [scope for each in known for scope in offline.lines.scopes(campaign, each.account if each else None)]
    return list(dict.fromkeys(scopes))


def _spent_window(scopes: list[str], statuses: dict[str, ScopeStatus]) -> tuple[str, WindowStatus] | None:
    for scope in scopes:
        status = statuses.get(scope)
        for window in status.windows if status is not None else ():
            if window.state in ("closed", "probing"):
                return scope, window
    return None


def _note(
    campaign: Campaign,
    counts: UnitCounts,
    scopes: list[str],
    statuses: dict[str, ScopeStatus],
    waits: dict[str, Deferred],
    now: float,
) -> str:
    held = [
        f"{scope} is held: {statuses[scope].held}" for scope in scopes if scope in statuses and statuses[scope].held
    ]
    if held:
        return held[0]
    if campaign.state != "active" or counts.todo == counts.parked:
        return ""
    lines = [why for line, why in waits.items() if split_line(line)[0] == campaign.name]
    return wait_words(lines[0], now) if lines else ""


# -- capacity --------------------------------------------------------------------------------------


def _scope_rows(home: Home, offline: OfflineState, now: float) -> Iterator[ScopeRow]:
    """As `limits` lists them, and every account, whether or not anything is known of it."""
    limits = limit_rows(home, offline, now)
    listed = {limit.scope for limit in limits}
    for account in home.settings.accounts.values():
        if account.scope not in listed:
            limits.append(LimitRow(scope=account.scope, configured=None, source="", effective=None))
    queues = _queues(home, offline)
    own = [limit for limit in limits if not is_provider_scope(limit.scope)]
    of_providers = sorted((limit for limit in limits if is_provider_scope(limit.scope)), key=lambda each: each.scope)
    for limit in (*own, *of_providers):
        yield ScopeRow(limit=limit, queue=queues.get(limit.scope, 0))


def _queues(home: Home, offline: OfflineState) -> dict[str, int]:
    queues: dict[str, int] = {}
    for (name, bound_to), units in home.store.claimable().items():
        campaign = offline.campaigns.get(name)
        if campaign is None or campaign.state != "active":  # one that was added since is seen at the next look
            continue
        accounts = campaign.accounts if bound_to is None else (bound_to,)
        occupied = msgspec.structs.replace(campaign, accounts=accounts)
        for scope in _scopes_of(offline, occupied, home):
            queues[scope] = queues.get(scope, 0) + units
    return queues
