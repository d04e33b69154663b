"""All of a Governor as one frozen value, and back. What restarts is indistinguishable from what never stopped.

`msgspec.json.encode(snapshot)` and `msgspec.json.decode(data, type=Snapshot)` store it.
"""

import math
from heapq import heapify

import msgspec

from paceline.core.decisions.admission import park
from paceline.core.gates.learned_rate import LearntRate
from paceline.core.gates.pause import Pause, Reentry
from paceline.core.gates.quota_window import Window
from paceline.core.gates.rate_limit import LineKey, RateWindow, line_of
from paceline.core.gates.usage_poll import UsageGate
from paceline.core.gates.window_budget import RATE_SPAN_SECONDS, BudgetGate, Pacer
from paceline.core.limits.adaptive_limit import Headroom, PlatformCap
from paceline.core.state.ledger import Books
from paceline.core.state.live_slot import LiveSlot
from paceline.core.state.queue import Lane, Waiter
from paceline.core.state.scope import ScopeState
from paceline.core.values.settings import Cooldown, GovernorSettings, HeadroomMode
from paceline.core.values.tickets import Ticket
from paceline.core.values.verdicts import Effect
from paceline.errors import InvalidSnapshot

VERSION = 1


class ScopeRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one scope holds and has learnt. Counts follow from slots; the configured limit from the tables."""

    name: str
    cooling: tuple[float, ...] = ()
    headroom: Headroom | None = None
    platform: PlatformCap | None = None
    pause: Pause | None = None
    reentry: Reentry | None = None
    windows: tuple[Window, ...] = ()
    pacer: Pacer | None = None
    learnt_rates: tuple[LearntRate, ...] = ()
    mean_tokens: float = 0.0
    budget: BudgetGate | None = None
    rate: RateWindow | None = None
    usage: UsageGate | None = None
    hold: str | None = None
    began_at: float | None = None
    places: int = 0
    place_balance: float = 0.0
    starts: int = 0
    tokens_used: float = 0.0


class GroupRecord(msgspec.Struct, frozen=True):
    name: str | int
    weight: float
    accrued: float
    accrued_at: float
    live: int


class SlotRecord(msgspec.Struct, frozen=True):
    ticket: Ticket
    granted_at: float
    token: int
    expires_at: float | None
    heard: int
    reported: bool
    reclaim_at: float | None


class WaiterRecord(msgspec.Struct, frozen=True):
    """In line. `watching` is set for the foremost of each lane."""

    ticket: Ticket
    key: float
    seq: int
    enqueued_at: float
    passed_since: float | None
    watching: str | None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that must survive. Limits set live are apart from the settings' and from what was learnt."""

    version: int = VERSION
    settings: GovernorSettings
    at: float
    seq: int
    limits: dict[str, int | None]
    cooldowns: dict[str, Cooldown]
    headroom_modes: dict[str, HeadroomMode]
    scopes: tuple[ScopeRecord, ...]
    groups: tuple[GroupRecord, ...]
    slots: tuple[SlotRecord, ...]
    waiters: tuple[WaiterRecord, ...]
    claims: tuple[str, ...]
    recent: tuple[tuple[float, tuple[str, ...]], ...]
    finished_seconds: float
    finished_slots: int
    sweep_at: float | None
    effects: tuple[Effect, ...]
    owners: dict[str, str] = {}
    """The session that a slot belongs to by name, as far as a shell keeps such names."""


def take(books: Books) -> Snapshot:
    return Snapshot(
        settings=books.settings,
        at=books.now,
        seq=books.seq,
        limits=dict(books.limits.live),
        cooldowns=dict(books.cooldowns.live),
        headroom_modes=dict(books.modes.live),
        scopes=tuple(_scope_record(scope) for scope in books.scopes.values()),
        groups=tuple(
            GroupRecord(group.name, group.weight, group.accrued, group.accrued_at, group.live)
            for group in books.groups.values()
        ),
        slots=tuple(
            SlotRecord(
                slot.ticket, slot.granted_at, slot.token, slot.expires_at, slot.heard, slot.reported, slot.reclaim_at
            )
            for slot in books.slots.values()
        ),
        waiters=tuple(_waiter_record(waiter) for waiter in books.waiters.values()),
        claims=tuple(waiter.ticket.id for waiter in books.claims),
        recent=tuple(
            (at, tuple(scope.name for scope in scopes))
            for at, scopes in books.recent
            if at > books.now - RATE_SPAN_SECONDS
        ),
        finished_seconds=books.finished_seconds,
        finished_slots=books.finished_slots,
        sweep_at=books.sweep_at,
        effects=tuple(books.effects),
    )


def _scope_record(scope: ScopeState) -> ScopeRecord:
    return _copied(
        ScopeRecord(
            name=scope.name,
            cooling=tuple(scope.cooling),
            headroom=scope.headroom,
            platform=scope.platform,
            pause=scope.pause,
            reentry=scope.reentry,
            windows=tuple(scope.windows.values()),
            pacer=scope.pacer,
            learnt_rates=tuple(scope.learnt_rates.values()),
            mean_tokens=scope.mean_tokens,
            budget=scope.budget,
            rate=scope.rate,
            usage=scope.usage,
            hold=scope.hold,
            began_at=scope.began_at,
            places=scope.live,
            place_balance=scope.place_balance,
            starts=scope.starts,
            tokens_used=scope.tokens_used,
        )
    )


def _copied(record: ScopeRecord) -> ScopeRecord:
    """Nothing in common with the original, whose parts go on changing. Many times as fast as `deepcopy`."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=ScopeRecord)


def _waiter_record(waiter: Waiter) -> WaiterRecord:
    lane = waiter.lane
    watching = lane.watching.name if lane.head is waiter and lane.watching is not None else None
    return WaiterRecord(waiter.ticket, waiter.key, waiter.seq, waiter.enqueued_at, waiter.passed_since, watching)


# -- and back ----------------------------------------------------------------------------------


def rebuild(snapshot: Snapshot, settings: GovernorSettings | None) -> Books:
    """Books that go on where the snapshot was taken."""
    if snapshot.version > VERSION:
        raise InvalidSnapshot(f"snapshot version {snapshot.version} is newer than {VERSION}: update Paceline")
    books = Books(
        settings or snapshot.settings,
        snapshot.at,
        live_limits=snapshot.limits,
        live_cooldowns=snapshot.cooldowns,
        live_modes=snapshot.headroom_modes,
    )
    books.finished_seconds, books.finished_slots = snapshot.finished_seconds, snapshot.finished_slots
    for group_record in snapshot.groups:
        _rebuild_group(books, group_record)  # in the order they appeared, which breaks ties
    lines = {line_of(waiter.ticket) for waiter in snapshot.waiters}
    for record in snapshot.scopes:
        _rebuild_scope(books, record, lines)
    for slot_record in snapshot.slots:
        _rebuild_slot(books, slot_record)
    for record in snapshot.scopes:
        _rebuild_meter(books.scope(record.name), record, snapshot.at)
    _rebuild_line(books, snapshot)
    books.recent.extend((at, tuple(books.scope(name) for name in names)) for at, names in snapshot.recent)
    books.next_due = -math.inf  # look at everything once
    books.seq, books.sweep_at, books.effects = snapshot.seq, snapshot.sweep_at, list(snapshot.effects)
    if books.slots and books.sweep_at is None:
        books.sweep_at = books.now + books.settings.watchdog_interval
    for scope in books.scopes.values():
        scope.refresh()
        books.schedule(scope)
    return books


def _rebuild_group(books: Books, record: GroupRecord) -> None:
    group = books.group(record.name, record.weight)
    group.live = record.live
    group.accrued, group.accrued_at = record.accrued, record.accrued_at


def _rebuild_scope(books: Books, record: ScopeRecord, lines: set[LineKey]) -> None:
    scope = books.scope(record.name)
    parts = _copied(record)
    scope.cooling = list(parts.cooling)
    scope.used = len(scope.cooling)
    scope.headroom, scope.platform, scope.pause = parts.headroom, parts.platform, parts.pause
    scope.reentry = parts.reentry
    scope.mean_tokens = parts.mean_tokens
    scope.learnt_rates = {rate.cause: rate for rate in parts.learnt_rates}
    scope.windows = {window.name: window for window in parts.windows}
    scope.pacer, scope.budget, scope.hold = parts.pacer, parts.budget, parts.hold
    if scope.rate is not None and parts.rate is not None:
        scope.rate = parts.rate.under(scope.rate.rate, lines)
    if scope.usage is not None and parts.usage is not None:
        scope.usage = parts.usage
    scope.refresh()


def _rebuild_meter(scope: ScopeState, record: ScopeRecord, at: float) -> None:
    """Places are taken again by now; those of slots that were left out are freed as of the snapshot."""
    scope.began_at = at if record.began_at is None else record.began_at
    scope.place_balance = record.place_balance + (record.places - scope.live) * at
    scope.starts, scope.tokens_used = record.starts, record.tokens_used


def _rebuild_slot(books: Books, record: SlotRecord) -> None:
    """Sessions stand before their runs, as they were granted, so that runs find their session.

    A holder that needed no lease lived in the process that is gone: from now on its lease runs.
    """
    lane = books.lane_as_accepted(record.ticket)
    expires_at = books.now + books.settings.slot_timeout if record.expires_at is None else record.expires_at
    slot = LiveSlot(
        record.ticket,
        lane,
        record.granted_at,
        record.token,
        expires_at,
        record.heard,
        record.reported,
        record.reclaim_at,
    )
    books.slots[record.ticket.id] = slot
    books.take_places(lane)
    if slot.reclaim_at is not None:
        books.lost.append(slot)


def _rebuild_line(books: Books, snapshot: Snapshot) -> None:
    heads: dict[Lane, str | None] = {}
    for record in snapshot.waiters:
        lane = books.lane_as_accepted(record.ticket)
        waiter = Waiter(record.key, record.seq, record.ticket, lane, record.enqueued_at, record.passed_since)
        books.waiters[record.ticket.id] = waiter
        lane.push(waiter)
        lane.group.waiting += 1
        for scope in lane.scopes:
            scope.waiting += 1
            scope.spreading += record.ticket.spread
        if record.watching is not None or lane not in heads:
            heads[lane] = record.watching
        if record.passed_since is not None and record.ticket.id not in snapshot.claims:
            due = record.passed_since + books.settings.ageing
            books.claim_timers.append((due, record.seq, waiter))
    heapify(books.claim_timers)
    for lane, watching in heads.items():
        if watching is not None:
            park(lane, books.scope(watching))
    for ticket_id in snapshot.claims:
        waiter = books.waiters[ticket_id]
        books.claims.append(waiter)
        for scope in waiter.lane.scopes:
            scope.reserved += 1
