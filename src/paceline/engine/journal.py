"""The journal of an engine: events, the Governor's state, and why each queue waits, as they are stored.

Here: what is stored beside the units, and in which order; the events of attempts; which waits are news. Never here:
when it is stored; each step of a pass knows that.
"""

import contextlib
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from paceline.agents.account import split_login
from paceline.core import Deferred
from paceline.engine.capacity.governor_state import save_governor
from paceline.engine.command_log import CommandReader
from paceline.engine.dispatch.placement import logins_on
from paceline.engine.dispatch.ticket_queues import TicketQueues, split_queue_name
from paceline.engine.settings import NO_ACCOUNT, EngineSettings
from paceline.events import Event
from paceline.limiter.governor_driver import GovernorDriver
from paceline.store import Campaign, OutcomeRecord, Store, Unit

if TYPE_CHECKING:  # commands that read the waits need no session
    from paceline.engine.session.live_session import LiveSession
    from paceline.executors.interface import Handle
    from paceline.hosts.leader.registry import HostRegistry

WAIT_REPEAT_SECONDS = 60.0
"""Two reasons may alternate every second, as a place becomes free and is taken: each is one event a minute."""


class WaitNews:
    """The waits of queues that were not reported yet."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, str]] = {}
        self._reported_at: dict[tuple[str, str, str], float] = {}
        self._due_at = math.inf

    def is_due(self, now: float) -> bool:
        """Return whether a reason that came back too soon may be reported now, if it still holds."""
        return self._due_at < math.inf and not self._due_at - WAIT_REPEAT_SECONDS <= now < self._due_at

    def take(self, waits: Mapping[str, Deferred], now: float) -> dict[str, Deferred]:
        """Return the waits to report now, by queue."""
        recent = {key: at for key, at in self._reported_at.items() if 0 <= now - at < WAIT_REPEAT_SECONDS}
        changed = {
            queue: why
            for queue, why in waits.items()
            if why.reason != "queue_order" and self._last.get(queue) != (why.reason, why.scope)
        }
        early = [at for queue, why in changed.items() if (at := recent.get((queue, why.reason, why.scope))) is not None]
        self._due_at = min(early, default=math.inf) + WAIT_REPEAT_SECONDS
        news = {queue: why for queue, why in changed.items() if (queue, why.reason, why.scope) not in recent}
        self._reported_at = recent | {(queue, why.reason, why.scope): now for queue, why in news.items()}
        self._last = {queue: gist for queue, gist in self._last.items() if queue in waits}
        self._last |= {queue: (why.reason, why.scope) for queue, why in news.items()}
        return news


log = logging.getLogger("paceline.engine")

LAST_EVENTS = {
    "succeed": "unit.done",
    "quarantine": "unit.quarantined",
    "fail_check": "unit.unverified",
    "hold": "unit.held",
    "cancel": "unit.cancelled",
}
"""The events of the steps after which a unit is not tried again by itself."""
OTHERS_FIRST = " (other units go first, until one has ended well)"


def start_event(unit: Unit, scope: str, now: float) -> Event:
    """Return the event of an attempt that begins, with the start time that is stored for its unit."""
    name = "unit.resumed" if unit.counters.parks else "unit.started"
    fields: dict[str, object] = {"attempt": unit.attempt_id, "session_id": unit.conversation_id}
    if unit.result.carried.is_restarted:
        fields["restarted"] = True
    return Event(name, now, scope, unit.id, fields)


def unit_event(record: OutcomeRecord, now: float, *, others_first: bool = False) -> Event:
    """Return the event of an attempt that ended. `others_first`: until another unit has ended well."""
    transition = record.transition
    fields: dict[str, object] = {
        "reason": transition.reason + (OTHERS_FIRST if others_first else ""),
        "resume_at": transition.resume_at,
        "exit_code": transition.exit_code,
        "attempts": transition.counters.failures,
    }
    if record.denials:
        fields["denials"] = record.denials
    if record.warnings:
        fields["warnings"] = list(record.warnings)
    waits_for_a_window = transition.ending == "parked" and transition.resume_at is not None
    again = "unit.failed" if transition.ending == "failed" else "unit.parked" if waits_for_a_window else "unit.requeued"
    return Event(LAST_EVENTS.get(transition.step, again), now, None, record.unit_id, fields)


incidents = logging.getLogger("paceline.engine.incidents")
"""The log of what kept everybody waiting: a night is explained by it. It is no warning, so no screen shows it."""
incidents.setLevel(logging.INFO)
INCIDENTS = ("scope.paused", "window.closed", "account.held")
WHY_STATE = "why"
CAMPAIGN = "campaign:"
PACING_STEP_SECONDS = 60.0
"""How far a pacing time must move to be stored again: it moves with every second of use, and each store is a write."""

Gist = tuple[str, str, float | None]


class EngineJournal:
    """Collects events between saves. A save writes the Governor with the events, then the reasons to wait."""

    def __init__(
        self, store: Store, driver: GovernorDriver, queues: TicketQueues, listeners: list[Callable[[], object]]
    ) -> None:
        self._store, self._driver, self._queues, self._listeners = store, driver, queues, listeners
        self.commands = CommandReader(store)
        """It skips the events that this journal appends."""
        self.governor_events: list[Event] = []
        """The events of the Governor until the pass collects them."""
        self._unsaved: list[Event] = []
        self._doubtful: tuple[int, int] | None = None
        """How many of them may be stored, above which id: a save failed, and its commit may have gone through."""
        self._stored_gists: Mapping[str, Gist] = {}
        self._wait_news = WaitNews()
        self.has_learnt = False
        """Whether the Governor has changed in a way that must survive a restart."""
        self.canaries: set[str] = set()
        """Tickets that were granted as a canary and wait for their unit."""

    def emit(self, name: str, *, scope: str | None = None, unit: str | None = None, **fields: object) -> None:
        """Store an event of the present time with the next save."""
        self.append(Event(name, self._driver.now(), scope, unit, fields))

    def append(self, event: Event) -> None:
        """Store an event with the next save."""
        self._unsaved.append(event)

    def pause(self, campaigns: Iterable[Campaign], now: float) -> None:
        """Store campaigns that pause themselves, each with its event. Call it in a block of `together`."""
        for each in campaigns:
            self._store.set_campaign(each)
            fields: dict[str, object] = {"reason": each.pause_reason}
            self.append(Event("campaign.paused", now, f"{CAMPAIGN}{each.name}", None, fields))

    def collect(self, now: float) -> None:
        """Let time pass, and take in what the Governor emitted."""
        self._driver.advance(now)
        events, self.governor_events = self.governor_events, []
        for event in events:
            if event.name == "window.reopened":  # perhaps early: units parked for it need not wait for the reset
                self.wake(event.scope or "")
            if event.name in INCIDENTS:
                incidents.info("%s: %s", event.scope, _incident_text(event))
            if event.name == "window.canary":
                self.canaries.add(str(event.fields["ticket"]))
            self._unsaved.append(event)
            self.has_learnt = True

    def wake(self, scope: str) -> None:
        """Wake the units parked for a window of the scope: of a campaign, of a provider, or of an account."""
        hosts = self._queues.hosts(self._driver.now())
        if scope.startswith(CAMPAIGN):
            for login in logins_on(hosts, [NO_ACCOUNT]):
                self._store.wake_units(account=login, campaign=scope.removeprefix(CAMPAIGN))
        accounts = ((each.id, each.provider, f"{each.scope}/") for each in self._queues.accounts)
        within = [name for name, provider, path in accounts if scope == provider or f"{scope}/".startswith(path)]
        for login in logins_on(hosts, within):
            self._store.wake_units(account=login)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Store the writes of the block, what was learnt and all events in one transaction.

        The block appends the events of what it writes, so that no change is ever stored without its event. If it
        raises, none of it is stored, and the events from before the block wait for the next save.
        """
        if self._doubtful is not None:
            self._drop_stored(*self._doubtful)
        before = len(self._unsaved)
        last_id = None
        try:
            with self._store.together():
                yield
                if self.has_learnt:
                    save_governor(self._store, self._driver.governor)
                if self._unsaved:
                    last_id = self._store.append_events(self._unsaved)
        except BaseException:
            del self._unsaved[before:]
            self._doubtful = (before, self.commands.position) if before else None
            raise
        self.has_learnt = False
        if last_id is not None:
            self.commands.skip_own(last_id, len(self._unsaved))
            self._unsaved = []
            self.notify()

    def notify(self) -> None:
        """Call all listeners. One that fails is logged; the others are still called."""
        for on_stored in list(self._listeners):
            try:
                on_stored()
            except Exception:
                log.exception("a listener failed")

    def _drop_stored(self, count: int, position: int) -> None:
        """Drop the events of a save that failed if its commit went through: all of them are stored then."""
        first = self._unsaved[0]
        for stored in self._store.events(after=position):
            event = stored.event
            if (event.name, event.at, event.scope, event.unit) == (first.name, first.at, first.scope, first.unit):
                del self._unsaved[:count]
                break
        self._doubtful = None

    def flush(self) -> None:
        """Store the events and what was learnt, if there is any."""
        if self._unsaved or self.has_learnt:
            with self.together():
                pass

    def save(self, now: float) -> None:
        """Store what changed since the last save."""
        reasons = self._queues.why(now)
        gists = {queue: _gist_of(reason) for queue, reason in reasons.items()}
        has_changed = gists != self._stored_gists
        if has_changed or self._wait_news.is_due(now):
            self._unsaved += [wait_event(queue, why, now) for queue, why in self._wait_news.take(reasons, now).items()]
        if not (has_changed or self.has_learnt or self._unsaved):
            return
        with self.together():
            if has_changed:  # other processes read them from the store
                self._store.save_state(WHY_STATE, msgspec.json.encode(reasons))
        self._stored_gists = gists


class EngineParts(msgspec.Struct, frozen=True, kw_only=True):
    """What all steps of a pass work on."""

    store: Store
    driver: GovernorDriver
    hosts: "HostRegistry"
    settings: EngineSettings
    queues: TicketQueues
    journal: EngineJournal
    campaigns: dict[str, Campaign] = {}
    """All campaigns, by name."""
    live: "dict[str, LiveSession]" = {}
    """The sessions that run, by unit."""
    ended: "list[Handle]" = []
    """What has ended and is stored, or was stopped. Once it is over, its output is put away."""


def wait_event(queue: str, why: Deferred, now: float) -> Event:
    """Return the event of a queue of a campaign that waits: what its units wait for, and on which login."""
    campaign, login = split_queue_name(queue)
    account, host = split_login(login)
    fields = {"ticket": why.ticket_id, "reason": why.reason, "detail": why.detail, "retry_at": why.retry_at}
    place = {"campaign": campaign, "account": account or None, "host": host or None}
    return Event("slot.deferred", now, why.scope, None, {**fields, **place})


def _incident_text(event: Event) -> str:
    fields = event.fields
    if event.name == "account.held":
        return f"held: {fields['detail']}"
    what = "paused" if event.name == "scope.paused" else f"the {fields['window']} window is closed"
    until = fields.get("until", fields.get("resets_at"))
    wait = f" for {until - event.at:.0f} s" if isinstance(until, int | float) else ""
    return f"{what}{wait} ({fields.get('cause') or fields.get('source')})"


def _gist_of(reason: Deferred) -> Gist:
    """Return the part of a reason that is worth storing again when it changes."""
    at = reason.retry_at
    if at is not None and reason.reason == "pacing":
        at = at // PACING_STEP_SECONDS * PACING_STEP_SECONDS
    return reason.reason, reason.scope, at
