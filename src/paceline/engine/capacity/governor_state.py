"""The Governor's state: in the store, as campaigns and hosts limit it, and as an engine would find it now.

Also logins that are held. What a process that does not lead rebuilds from the store is there to be read and thrown
away: nothing that is decided on it is stored or carried out.
"""

import contextlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from paceline.agents.account import Account, login_files
from paceline.core import Governor, GovernorSettings, Snapshot
from paceline.core.state.snapshot import VERSION
from paceline.core.values.fields import fields_of
from paceline.core.values.scopes import CHECKS, KEY
from paceline.engine import command_log
from paceline.engine.capacity.external_slots import LOST_GRACE_SECONDS, is_there, ticket_of
from paceline.engine.dispatch.placement import with_own_machine
from paceline.engine.dispatch.ticket_queues import TicketQueues, unit_ticket
from paceline.engine.settings import EngineSettings
from paceline.errors import InvalidSnapshot, PacelineError
from paceline.events import Event
from paceline.hosts.messages import HostState, stored_host_states
from paceline.store import Campaign, ClientKey, Store

GOVERNOR_STATE = "governor"
_WAY_OUT = (
    "To begin without it, run `paceline restore --unreadable`: limits that were set live, holds and closed windows are "
    "then forgotten, and the old state stays in the database"
)


def load_governor(store: Store, settings: GovernorSettings, now: float) -> Governor:
    """Load limits, pauses, windows and what was learnt. Slots are not loaded: recovery adopts what still runs.

    Raise `InvalidSnapshot` if it cannot be read. It stays stored: holds and limits must not be forgotten by accident.
    """
    stored = store.load_state(GOVERNOR_STATE)
    if stored is None:
        return Governor(settings, now=now)
    _check_version(stored)
    try:
        snapshot = msgspec.json.decode(stored, type=Snapshot)
        return Governor.restore(snapshot, now=now, settings=settings, keep_slots=False)
    except (msgspec.MsgspecError, ValueError, TypeError, LookupError) as error:
        raise InvalidSnapshot(
            f"what this home has learnt (limits, windows, holds) cannot be read: {error}. "
            f"It is kept as it is: restore a copy of the database. {_WAY_OUT}"
        ) from error


def set_aside_unreadable(store: Store, settings: GovernorSettings, now: float) -> str | None:
    """Move a state that cannot be read to another key. Returns that key; None if the state can be read."""
    try:
        load_governor(store, settings, now)
    except InvalidSnapshot:
        stored = store.load_state(GOVERNOR_STATE)
        assert stored is not None
        key = f"{GOVERNOR_STATE}.unreadable.{int(now)}"
        governor = Governor(settings, now=now)
        for each in store.client_keys():  # the settings do not have their limits
            if each.key.revoked_at is None:
                command_log.apply_key(governor, f"{KEY}{each.key.name}", fields_of(ClientKey, each.key), now)
        fresh = msgspec.json.encode(governor.snapshot())
        with store.together():
            store.save_state(key, stored)
            store.save_state(GOVERNOR_STATE, fresh)
            command_log.send(store, "set_aside", now=now, key=key)
        return key
    return None


def _check_version(stored: bytes) -> None:
    """Raise `InvalidSnapshot` for a newer version: it may have fields that this one cannot read."""
    try:
        version = msgspec.json.decode(stored, type=dict[str, Any]).get("version")
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return  # decoding all of it says what is wrong
    if isinstance(version, int) and version > VERSION:
        raise InvalidSnapshot(
            f"what this home has learnt was stored by a newer Paceline (snapshot version {version}, this one reads "
            f"{VERSION}). It is kept as it is: update Paceline. {_WAY_OUT}"
        )


def save_governor(store: Store, governor: Governor) -> None:
    store.save_state(GOVERNOR_STATE, msgspec.json.encode(governor.snapshot()))


def apply_campaign_limits(
    governor: Governor, campaigns: Iterable[Campaign], now: float, *, checks: int | None = None
) -> None:
    """Set the limit of each campaign's scope to its `max_sessions`.

    So many `checks` and setups run at once, if a campaign has some and nobody has set a limit for them.
    """
    for campaign in campaigns:
        scope = f"campaign:{campaign.name}"
        if governor.get_limit(scope) != campaign.max_sessions:
            governor.set_limit(scope, campaign.max_sessions, now=now)
        has_commands = campaign.check or (campaign.workspace is not None and campaign.workspace.setup)
        if checks is not None and has_commands and governor.get_limit(CHECKS) is None:
            governor.set_limit(CHECKS, checks, now=now)


def apply_host_limits(
    governor: Governor,
    hosts: Iterable[HostState],
    applied: dict[str, int | None],
    *,
    configured: Collection[str],
    now: float,
) -> None:
    """Set the limits of hosts that paceline.toml does not describe, once and whenever changed; `applied` has those."""
    for host in hosts:
        limit = host.settings.max_sessions or None  # with 0 nothing is placed there
        if host.name not in configured and applied.get(host.name) != limit:
            applied[host.name] = limit
            governor.set_limit(f"host:{host.name}", limit, now=now)


Marks = tuple[tuple[int, int] | None, ...]
"""What changes when somebody logs in: time and size of the login files."""


class LoginWatch:
    """Asks a held login again when its file has changed. It may have changed while no engine ran, too."""

    def __init__(
        self, governor: Governor, accounts: Iterable[Account], environ: Mapping[str, str], *, now: float
    ) -> None:
        """Ask every login once that is held already."""
        self._governor = governor
        self._accounts = {account.scope: account for account in accounts}
        self._environ = environ
        self.held: dict[str, Marks | None] = {scope: None for scope in self._accounts if self._is_held(scope, now)}
        """The marks of held logins as they were when they were last asked; None to ask them at the next step."""

    def note_holds(self, events: Iterable[Event]) -> None:
        """Watch the logins that are held from now on."""
        for event in events:
            if event.name == "account.held" and event.scope in self._accounts:
                self.held.setdefault(event.scope, self._marks(event.scope))

    def step(self, now: float) -> None:
        """Ask held logins again whose files have changed."""
        for scope, before in list(self.held.items()):
            if not self._is_held(scope, now):
                del self.held[scope]
            elif (marks := self._marks(scope)) != before and self._governor.ask_login_again(scope, now=now):
                self.held[scope] = marks

    def _is_held(self, scope: str, now: float) -> bool:
        status = self._governor.status(scope, now=now)
        return status is not None and status.held is not None

    def _marks(self, scope: str) -> Marks:
        found: list[tuple[int, int] | None] = []
        for path in login_files(self._accounts[scope], self._environ):
            try:
                stat = path.stat()
            except OSError:
                found.append(None)
            else:
                found.append((stat.st_mtime_ns, stat.st_size))
        return tuple(found)


class OfflineState:
    """A Governor of this process's own, in which every session of a unit and every granted slot occupies its places.

    `extra` campaigns count as if they were stored. A unit whose work is checked or delivered has no session any more.
    """

    def __init__(self, store: Store, settings: EngineSettings, now: float, extra: Iterable[Campaign] = ()) -> None:
        self.governor: Governor = load_governor(store, settings.governor, now)
        self.accounts = settings.campaign_accounts
        # Hosts whose workers have joined count as if they were there: who is there now, only the leader knows.
        known = stored_host_states(store, settings.hosts)
        hosts = [each if each.facts is None else msgspec.structs.replace(each, presence="joined") for each in known]
        every_host = with_own_machine(settings, lambda: hosts)
        self.queues = TicketQueues(self.governor, settings, "offline", hosts=every_host)
        self.campaigns = {campaign.name: campaign for campaign in (*store.campaigns(), *extra)}
        for command in command_log.CommandReader(store).read():
            with contextlib.suppress(PacelineError):  # the engine will log it
                command_log.carry_out(self.governor, command.event, now)
        apply_campaign_limits(self.governor, self.campaigns.values(), now)
        for unit in store.running_units(also_cancelled=True):
            campaign = self.campaigns.get(unit.campaign)
            if campaign is not None and unit.phase in (None, "working"):
                ticket_id = unit.attempt_id or f"unit:{unit.id}"  # runs inside the session name it by its attempt
                ticket = unit_ticket(unit, campaign, self.accounts, ticket_id, local_host=settings.local_host)
                self.governor.adopt(ticket, now=now)
        for slot in store.slots():
            # A leader would wait for the renewal of a lease that ran out long ago once more; a reader does not.
            has_expired = slot.lease is not None and now >= slot.lease.expires_at + LOST_GRACE_SECONDS
            if slot.granted_at is not None and is_there(slot) and not has_expired:
                self.governor.adopt(ticket_of(slot), now=now)
