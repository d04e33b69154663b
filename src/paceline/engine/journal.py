"""The journal of an engine: events, the Governor's state, and why each queue waits, as they are stored.

Here: what is stored beside the units, and in which order. Never here: when; each step of a pass knows that.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from paceline.agents.account import Account
from paceline.core import Deferred
from paceline.core.signals import Signal
from paceline.engine.campaign_accounts import NO_ACCOUNT, CampaignAccounts
from paceline.engine.command_log import CommandReader, event_of
from paceline.engine.governor_state import save_governor
from paceline.engine.local_machine import logins_on
from paceline.engine.ticket_queues import TicketQueues
from paceline.engine.unit_events import Listeners
from paceline.events import Event
from paceline.limiter.governor_driver import GovernorDriver
from paceline.store import Store

WHY_STATE = "why"
CAMPAIGN = "campaign:"
PACING_STEP_SECONDS = 60.0
"""How far a pacing time must move to be stored again: it moves with every second of use, and each store is a write."""

Gist = tuple[str, str, float | None]


class EngineJournal:
    """Collects events between saves. A save writes the Governor with the events, then the reasons to wait."""

    def __init__(
        self,
        store: Store,
        driver: GovernorDriver,
        queues: TicketQueues,
        commands: CommandReader,
        listeners: Listeners,
        accounts: CampaignAccounts,
    ) -> None:
        self._store = store
        self._driver = driver
        self._queues = queues
        self._commands = commands
        self._listeners = listeners
        self._accounts = accounts
        self._governor_events: list[Event] = []
        self._unsaved: list[Event] = []
        self._stored_gists: Mapping[str, Gist] = {}
        self.has_learnt = False
        """Whether the Governor has changed in a way that must survive a restart."""
        self.is_leader = True
        """Whether this process leads. What the Governor of another process has learnt is not stored."""
        self.canaries: set[str] = set()
        """Tickets that were granted as a canary and wait for their unit."""

    def emit(self, name: str, *, scope: str | None = None, unit: str | None = None, **fields: object) -> None:
        """Store an event of the present time with the next save."""
        self._unsaved.append(Event(name, self._driver.now(), scope, unit, fields))

    def append(self, event: Event) -> None:
        """Store an event with the next save."""
        self._unsaved.append(event)

    def note_signal(self, scope: str, signal: Signal, now: float) -> None:
        """Store what a session reported: in the Governor, or as a command to the leader."""
        self.has_learnt = True
        if not self.is_leader:
            self._unsaved.append(event_of("slot_report", now=now, scope=scope, signal=msgspec.to_builtins(signal)))

    def on_events(self, events: Sequence[Event]) -> None:
        """Keep events of the Governor until the pass collects them."""
        self._governor_events += events

    def collect(self, now: float) -> None:
        """Let time pass, and take in what the Governor emitted."""
        self._driver.advance(now)
        if not self.is_leader:
            self._governor_events.clear()  # the leader emits what follows from the same signals
            return
        events, self._governor_events = self._governor_events, []
        for event in events:
            if event.name == "window.reopened":  # perhaps early: units parked for it need not wait for the reset
                self.wake(event.scope or "")
            if event.name == "window.canary":
                self.canaries.add(str(event.fields["ticket"]))
            self._unsaved.append(event)
            self.has_learnt = True

    def wake(self, scope: str) -> None:
        """Wake the units that are parked for a window of the scope: those of its accounts, or of its campaign."""
        hosts = self._queues.hosts(self._driver.now())
        if scope.startswith(CAMPAIGN):
            for login in logins_on(hosts, [NO_ACCOUNT]):
                self._store.wake_account(login, campaign=scope.removeprefix(CAMPAIGN))
        for login in logins_on(hosts, accounts_within(scope, self._accounts)):
            self._store.wake_account(login)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Store the writes of the block, what was learnt and all events in one transaction.

        The block appends the events of what it writes, so that no change is ever stored without its event. If it
        raises, none of it is stored, and the events from before the block wait for the next save.
        """
        before = len(self._unsaved)
        last_id = None
        try:
            with self._store.together():
                yield
                if self.has_learnt and self.is_leader:
                    save_governor(self._store, self._driver.governor)
                if self._unsaved:
                    last_id = self._store.append_events(self._unsaved)
        except BaseException:
            del self._unsaved[before:]
            raise
        self.has_learnt = False
        if last_id is not None:
            self._commands.skip_own(last_id, len(self._unsaved))
            self._unsaved = []
            self._listeners.notify()

    def save_events(self) -> None:
        """Store the events of units."""
        if self._unsaved:
            with self.together():
                pass

    def save(self, now: float) -> None:
        """Store what changed since the last save."""
        if self.has_learnt or self._unsaved:
            with self.together():
                pass
        reasons = self._queues.why(now)
        gists = {queue: _gist_of(reason) for queue, reason in reasons.items()}
        if gists != self._stored_gists:  # other processes read them from the store
            self._store.save_state(WHY_STATE, msgspec.json.encode(reasons))
            self._stored_gists = gists


def accounts_within(scope: str, accounts: Iterable[Account]) -> list[str]:
    """Return the ids of the accounts that a window of the scope covers: all of a provider, or the one on the path."""
    return [
        account.id for account in accounts if scope == account.provider or f"{scope}/".startswith(f"{account.scope}/")
    ]


def _gist_of(reason: Deferred) -> Gist:
    """Return the part of a reason that is worth storing again when it changes."""
    at = reason.retry_at
    if at is not None and reason.reason == "pacing":
        at = at // PACING_STEP_SECONDS * PACING_STEP_SECONDS
    return reason.reason, reason.scope, at
