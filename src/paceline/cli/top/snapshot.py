"""What `top` reads: the home once a second, and one unit in detail, from the views of `status`, `list` and `limits`.

Here: values. Never here: how they look, or anything that changes the store.
"""

from collections.abc import Iterator, Mapping

import msgspec

from paceline.agents.account import split_login
from paceline.cli.output import source_text, wait_words
from paceline.core import ScopeStatus
from paceline.core.values.scopes import RUNS, is_provider_scope, path_scopes
from paceline.daemon.contact import LiveState, live_spend, read_accounts, read_keys, read_live
from paceline.daemon.home import Home
from paceline.engine.dispatch.ticket_queues import session_scopes
from paceline.engine.offline_state import OfflineState
from paceline.store import Campaign, StoredEvent
from paceline.views.accounts import AccountView, KeyView
from paceline.views.campaigns import CampaignView, CompletionRate, Throughput, campaign_views
from paceline.views.capacity import ScopeCapacity, capacity_rows, limit_rows
from paceline.views.fleet import FleetState
from paceline.views.gateway_calls import GatewayActivity, MemberFailure, SpendSum, spend_since, spend_view
from paceline.views.status import StatusSummary, completion_rate, read_status_summary
from paceline.views.transcript import last_output, transcript_provider
from paceline.views.units import UnitDetail, UnitPhase, phase_of, unit_detail, unit_history
from paceline.views.why import Wait, Why, stored_waits, wait_rows

KEPT_EVENTS = 1000
"""As far back as a person scrolls."""
PAGE_EVENTS = 1000


class ScopeLine(msgspec.Struct, frozen=True, kw_only=True):
    """A scope. `source` is where its limit comes from. `queue`: units that could start there, and waiting calls.

    `account` is set for the scope of an account, `failure` while a pool cannot use that account.
    """

    capacity: ScopeCapacity
    source: str
    queue: int
    account: AccountView | None = None
    failure: MemberFailure | None = None


class KeyLine(msgspec.Struct, frozen=True, kw_only=True):
    """A client's key and its use in 30 days.

    `name` is empty for Paceline's own token. `key` is None for that token and for keys that are revoked.
    """

    name: str
    key: KeyView | None
    spent: SpendSum | None


class TopSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything but the units, which are read page by page. `notes` say what blocks a campaign, by its name."""

    at: float
    status: StatusSummary
    rate: CompletionRate
    campaigns: tuple[CampaignView, ...]
    notes: Mapping[str, str]
    scopes: tuple[ScopeLine, ...]
    gateway: GatewayActivity | None
    """None if the daemon did not answer."""
    keys: tuple[KeyLine, ...]
    events: tuple[StoredEvent, ...]
    """Events since the last snapshot."""

    @property
    def is_gateway_alone(self) -> bool:
        """Whether the home has no campaign, and its gateway is in use."""
        return not self.campaigns and (bool(self.keys) or self.gateway not in (None, GatewayActivity()))


class SnapshotReader:
    """A reader of snapshots that remembers which events it has returned."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._throughput = Throughput(home.store)
        self._last_event = max(0, home.last_event_id() - KEPT_EVENTS)

    def read(self, now: float) -> TopSnapshot:
        """Read the home as it is now."""
        home = self._home
        self._throughput.catch_up(now)
        offline = home.offline_state(now)
        live = read_live(home)
        fleet = home.read_fleet(now, offline, scopes=live.scopes)
        waits = wait_rows(stored_waits(home.store), fleet.campaigns)
        return TopSnapshot(
            at=now,
            status=read_status_summary(fleet, home.leader_process(), live.counts),
            rate=completion_rate(fleet, self._throughput),
            campaigns=tuple(campaign_views(fleet, self._throughput)),
            notes={each.name: _note(fleet, each, _scopes_of(home, offline, each), waits) for each in fleet.campaigns},
            scopes=tuple(_scope_lines(home, offline, fleet, live)),
            gateway=live.gateway,
            keys=tuple(_key_lines(home, now)),
            events=tuple(self._new_events()),
        )

    def _new_events(self) -> Iterator[StoredEvent]:
        while events := self._home.store.events(after=self._last_event, limit=PAGE_EVENTS):
            self._last_event = events[-1].id
            yield from events
            if len(events) < PAGE_EVENTS:
                return


# -- what blocks a campaign ------------------------------------------------------------------------


def _scopes_of(home: Home, offline: OfflineState, campaign: Campaign) -> list[str]:
    """Return every scope that a session of the campaign could occupy, those of providers last."""
    ids = offline.accounts.ids_of(campaign)
    scopes = [scope for each in ids for scope in session_scopes(campaign, offline.accounts.of(campaign, each))]
    return list(dict.fromkeys(scopes))


def _note(fleet: FleetState, campaign: Campaign, scopes: list[str], waits: list[Wait]) -> str:
    known: list[ScopeStatus] = [fleet.scopes[scope] for scope in scopes if scope in fleet.scopes]
    held = next((status for status in known if status.held), None)
    if held is not None:
        return f"{held.scope} is held: {held.held}"
    counts = fleet.counts_of(campaign.name)
    if campaign.state != "active" or counts.todo == counts.parked:
        return ""
    wait = next((each for each in waits if each.campaign == campaign.name), None)
    return "" if wait is None else wait_words(wait.detail, wait.retry_at, fleet.now)


# -- capacity --------------------------------------------------------------------------------------


def _scope_lines(home: Home, offline: OfflineState, fleet: FleetState, live: LiveState) -> Iterator[ScopeLine]:
    """Yield the scopes that `limits` lists, and every account: those of providers, then those of keys, then others."""
    rows = {row.scope: row for row in limit_rows(fleet)}
    accounts = {account.scope: account for account in read_accounts(home, fleet)}
    failures = {failure.scope: failure for failure in live.failures}
    rows |= {row.scope: row for row in capacity_rows(fleet) if row.scope in accounts and row.scope not in rows}
    queues = _queues(home, offline)
    for scope, calls in ({} if live.gateway is None else live.gateway.waiting_by_scope).items():
        for part in (RUNS, *path_scopes(scope)):
            queues[part] = queues.get(part, 0) + calls
    for row in sorted(rows.values(), key=_rank):
        queue = row.queued if row.kind == "key" else queues.get(row.scope, 0)
        yield ScopeLine(
            capacity=row,
            source=source_text(row, home.settings),
            queue=queue,
            account=accounts.get(row.scope),
            failure=failures.get(row.scope),
        )


def _rank(row: ScopeCapacity) -> tuple[bool, bool, bool, str]:
    """Return the place of a row: scopes of providers, then patterns of them, keys, and the machine's own."""
    return not is_provider_scope(row.scope), "*" in row.scope, row.kind != "key", row.scope


def _key_lines(home: Home, now: float) -> Iterator[KeyLine]:
    """Yield the keys that work, then what was spent with others."""
    known = {each.name: each for each in read_keys(home, now).keys}
    first = spend_since(None, now)
    spent = live_spend(home, "key", first, None) or spend_view(home.store.spend(since=first), first, ("key",))
    sums = {row.key or "": row for row in spent.rows}
    for name in (*sorted(known), *sorted(sums.keys() - known.keys())):
        yield KeyLine(name=name, key=known.get(name), spent=sums.get(name))


def _queues(home: Home, offline: OfflineState) -> dict[str, int]:
    """Return how many units could start in each scope if it had room."""
    queues: dict[str, int] = {}
    for (name, bound_to), units in home.store.claimable().items():
        campaign = offline.campaigns.get(name)
        if campaign is None or campaign.state != "active":  # one that was added since is in the next snapshot
            continue
        accounts = campaign.accounts if bound_to is None else (split_login(bound_to)[0],)
        for scope in _scopes_of(home, offline, msgspec.structs.replace(campaign, accounts=accounts)):
            queues[scope] = queues.get(scope, 0) + units
    return queues


# -- one unit -----------------------------------------------------------------------------------------


class UnitInspection(msgspec.Struct, frozen=True, kw_only=True):
    """A unit with what it waits for. `has_output` is false where the output of its last attempt was deleted."""

    unit: UnitDetail
    phase: UnitPhase
    whys: tuple[Why, ...]
    has_output: bool


def inspect_unit(home: Home, unit_id: str) -> UnitInspection | None:
    """Read the unit, or return None if it was deleted."""
    unit = home.store.unit(unit_id)
    campaign = next((each for each in home.store.campaigns() if unit is not None and each.name == unit.campaign), None)
    if unit is None or campaign is None:
        return None
    folder = home.spool().folder(unit.attempt_id) if unit.attempt_id is not None else None
    provider = transcript_provider(home.store, home.settings, unit)
    screen = "" if folder is None else last_output(folder, provider, home.zone)
    return UnitInspection(
        unit=unit_detail(unit, screen=screen, history=unit_history(home.store, unit_id)),
        phase=phase_of(unit),
        whys=tuple(home.explain_unit(unit, campaign)),
        has_output=folder is not None,
    )
