"""All of a Governor as one frozen value, and a ledger made again from it.

A restored Governor behaves exactly like one that never stopped. `msgspec.json.encode(snapshot)` and
`msgspec.json.decode(data, type=Snapshot)` store it. Gates are stored by tag; those of a newer version are kept and
written back.
"""

import math
from collections.abc import Collection
from typing import TypeVar

import msgspec

from paceline.core.gates.order import decode_gate, tag_of
from paceline.core.gates.rates import RATE_SPAN_SECONDS, RateLimit
from paceline.core.gates.usage_poll import UsagePoll
from paceline.core.limits import AdaptiveLimit, PlatformCap
from paceline.core.state.lane import Lane, LiveSlot, Waiter
from paceline.core.state.ledger import Ledger
from paceline.core.state.scope import Scope
from paceline.core.state.tables import LiveSettings
from paceline.core.state.usage_meter import FIRST_SPREAD, TokenEstimate
from paceline.core.values.fields import fields_of
from paceline.core.values.settings import Cooldown, GovernorSettings, HeadroomMode, Rate
from paceline.core.values.tickets import Effect, LaneKey, Ticket, lane_key
from paceline.errors import InvalidSnapshot

Part = TypeVar("Part", bound=msgspec.Struct)
VERSION = 2
"""Raised whenever an older version could no longer read what is written."""


class ScopeRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one scope holds and has learnt. Counts follow from slots; the configured limit from the tables."""

    name: str
    cooling: tuple[float, ...] = ()
    adaptive: AdaptiveLimit | None = None
    platform: PlatformCap | None = None
    gates: dict[str, object] = msgspec.field(default_factory=dict)
    usage: UsagePoll | None = None
    mean_tokens: float = 0.0
    log_mean_tokens: float = 0.0
    token_spread: float = FIRST_SPREAD
    began_at: float = 0.0
    places: int = 0
    place_balance: float = 0.0
    starts: int = 0
    tokens_used: float = 0.0
    call_median: float | None = None


class GroupRecord(msgspec.Struct, frozen=True):
    """The use of one group."""

    name: str | int
    weight: float
    accrued: float
    accrued_at: float
    live: int


class SlotRecord(msgspec.Struct, frozen=True):
    """One live slot."""

    ticket: Ticket
    granted_at: float
    token: int
    expires_at: float | None
    proven_seq: int = msgspec.field(name="heard")
    reported: bool
    reclaim_at: float | None
    is_adopted: bool = False
    has_runs: bool = False
    """Whether runs of this session had slots of their own: then only they count its tokens."""


class WaiterRecord(msgspec.Struct, frozen=True):
    """One waiting ticket. `watching` is set for the foremost of each lane."""

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
    rates: dict[str, Rate] = {}
    """Rates that were set live."""
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


def take_snapshot(ledger: Ledger) -> Snapshot:
    """Return all of the ledger as a value that shares nothing with it."""
    since = ledger.now - RATE_SPAN_SECONDS
    return Snapshot(
        settings=ledger.settings,
        at=ledger.now,
        seq=ledger.seq,
        limits=dict(ledger.scopes.limits.live),
        cooldowns=dict(ledger.scopes.cooldowns.live),
        headroom_modes=dict(ledger.scopes.modes.live),
        rates=dict(ledger.scopes.rates.live),
        scopes=tuple(_scope_record(scope) for scope in ledger.scopes.by_name.values()),
        groups=tuple(_recorded(GroupRecord, group) for group in ledger.shares.groups.values()),
        slots=tuple(_recorded(SlotRecord, slot) for slot in ledger.slots.values()),
        waiters=tuple(_recorded(WaiterRecord, waiter) for waiter in ledger.waiters.values()),
        claims=tuple(waiter.ticket.id for waiter in ledger.place_claims),
        recent=tuple((at, tuple(scope.name for scope in scopes)) for at, scopes in ledger.recent if at > since),
        finished_seconds=ledger.shares.finished_seconds,
        finished_slots=ledger.shares.finished_slots,
        sweep_at=ledger.sweep_at,
        effects=tuple(ledger.effects),
    )


def _recorded(kind: type[Part], value: object) -> Part:
    return kind(**fields_of(kind, value))


def _scope_record(scope: Scope) -> ScopeRecord:
    gates = {tag_of(gate): msgspec.to_builtins(gate) for gate in scope.gates.in_order if gate.IS_STORED}
    return ScopeRecord(
        name=scope.name,
        cooling=tuple(scope.cooling),
        adaptive=copied(scope.adaptive, AdaptiveLimit),
        platform=copied(scope.platform, PlatformCap),
        gates={**scope.gates.unknown, **gates},
        usage=copied(scope.usage, UsagePoll),
        mean_tokens=scope.tokens.mean,
        log_mean_tokens=scope.tokens.log_mean,
        token_spread=scope.tokens.spread,
        began_at=scope.meter.began_at,
        places=scope.live,
        place_balance=scope.meter.place_balance,
        starts=scope.meter.starts,
        tokens_used=scope.meter.tokens,
        call_median=scope.calls.median,
    )


def copied(part: Part | None, kind: type[Part]) -> Part | None:
    """Return a deep copy of the part, because the original continues to change."""
    return None if part is None else msgspec.convert(msgspec.to_builtins(part), kind)


def restore_ledger(snapshot: Snapshot, settings: GovernorSettings | None) -> Ledger:
    """Return a ledger that continues from the snapshot."""
    if snapshot.version > VERSION:
        raise InvalidSnapshot(f"snapshot version {snapshot.version} is newer than {VERSION}: update Paceline")
    if snapshot.version < VERSION:
        raise InvalidSnapshot(
            f"snapshot version {snapshot.version} was never released, and this version does not read it; "
            "finish the work with the version that wrote it, or name a new home"
        )
    live = LiveSettings(snapshot.limits, snapshot.cooldowns, snapshot.headroom_modes, snapshot.rates)
    ledger = Ledger(settings or snapshot.settings, snapshot.at, live=live)
    ledger.shares.finished_seconds, ledger.shares.finished_slots = snapshot.finished_seconds, snapshot.finished_slots
    for group_record in snapshot.groups:
        _restore_group(ledger, group_record)  # in the order they appeared, which breaks ties
    lanes = {lane_key(waiter.ticket) for waiter in snapshot.waiters}
    for record in snapshot.scopes:
        _restore_scope(ledger.scope(record.name), record, lanes)
    for slot_record in snapshot.slots:
        _restore_slot(ledger, slot_record)
    for record in snapshot.scopes:
        _restore_meter(ledger.scope(record.name), record, snapshot.at)
    _restore_waiters(ledger, snapshot)
    ledger.recent.extend((at, tuple(ledger.scope(name) for name in names)) for at, names in snapshot.recent)
    ledger.next_due = -math.inf  # wake every scope once
    ledger.seq, ledger.sweep_at, ledger.effects = snapshot.seq, snapshot.sweep_at, list(snapshot.effects)
    if ledger.slots and ledger.sweep_at is None:
        ledger.sweep_at = ledger.now + ledger.settings.watchdog_interval
    for scope in ledger.scopes.by_name.values():
        ledger.refresh(scope)
    return ledger


def without_slots(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot without slots and waiters. Limits, gates and what was learnt stay."""
    groups = tuple(msgspec.structs.replace(group, live=0) for group in snapshot.groups)
    return msgspec.structs.replace(snapshot, slots=(), waiters=(), claims=(), effects=(), groups=groups)


def lose_canaries(ledger: Ledger, now: float) -> None:
    """Allow another canary wherever there was one: it is gone with its slot."""
    for scope in ledger.scopes.by_name.values():
        for gate in scope.gates.probed:
            gate.on_canary_lost(None, now)
        ledger.refresh(scope)


def _restore_group(ledger: Ledger, record: GroupRecord) -> None:
    group = ledger.shares.group(record.name, record.weight, ledger.now)
    group.live = record.live
    group.accrued, group.accrued_at = record.accrued, record.accrued_at


def _restore_scope(scope: Scope, record: ScopeRecord, lanes: Collection[LaneKey]) -> None:
    scope.cooling = list(record.cooling)
    scope.used = len(scope.cooling)
    scope.adaptive = copied(record.adaptive, AdaptiveLimit)
    if scope.mode == "off" and scope.adaptive is not None:
        scope.adaptive.clear()  # it was switched off in the settings
    scope.platform = copied(record.platform, PlatformCap)
    scope.meter.starts = record.starts  # before its slots: a scope that ran before has no first ramp
    log_mean = record.log_mean_tokens or math.log(max(1.0, record.mean_tokens))  # an older snapshot lacks it
    scope.tokens = TokenEstimate(record.mean_tokens, log_mean, record.token_spread)
    scope.calls.median = record.call_median
    for tag, raw in record.gates.items():
        _restore_gate(scope, tag, raw, lanes)
    if scope.usage is not None and record.usage is not None:
        scope.usage = copied(record.usage, UsagePoll)
    scope.refresh()


def _restore_gate(scope: Scope, tag: str, raw: object, lanes: Collection[LaneKey]) -> None:
    try:
        stored = decode_gate(tag, raw)
    except msgspec.ValidationError as problem:
        raise InvalidSnapshot(f"the {tag} of {scope.name} in the snapshot cannot be read: {problem}") from problem
    if stored is None:
        scope.gates.unknown[tag] = raw
        return
    if not isinstance(stored, RateLimit):
        scope.gates.put(stored)
    elif (configured := scope.gates.rate_limit) is not None:
        scope.gates.put(stored.continued(configured.rate, lanes))


def _restore_meter(scope: Scope, record: ScopeRecord, at: float) -> None:
    """Restore the counts of places, starts and tokens, once the slots are restored.

    A slot that was left out gives back its place at the time of the snapshot.
    """
    meter = scope.meter
    meter.began_at = record.began_at
    meter.place_balance = record.place_balance + (record.places - scope.live) * at
    meter.starts, meter.tokens = record.starts, record.tokens_used


def _restore_slot(ledger: Ledger, record: SlotRecord) -> None:
    """Sessions stand before their runs, as they were granted, so that runs find their session.

    A holder that needed no lease lived in the process that is gone: from now on its lease runs.
    """
    lane = ledger.lanes.accepted_lane(record.ticket, ledger.now)
    slot = LiveSlot(lane=lane, runs={} if record.has_runs else None, **fields_of(LiveSlot, record))
    if slot.expires_at is None:
        slot.expires_at = ledger.now + ledger.settings.slot_timeout
    ledger.slots[record.ticket.id] = slot
    ledger.take_places(lane)
    if slot.reclaim_at is not None:
        ledger.lost.append(slot)


def _restore_waiters(ledger: Ledger, snapshot: Snapshot) -> None:
    heads: dict[Lane, str | None] = {}
    for record in snapshot.waiters:
        lane = ledger.lanes.accepted_lane(record.ticket, ledger.now)
        waiter = Waiter(record.key, record.seq, record.ticket, lane, record.enqueued_at, record.passed_since)
        ledger.waiters[record.ticket.id] = waiter
        lane.push(waiter)
        lane.group.waiting += 1
        for scope in lane.scopes:
            scope.waiting += 1
            scope.spread_waiters += record.ticket.spread
        if record.watching is not None or lane not in heads:
            heads[lane] = record.watching
        if record.passed_since is not None and record.ticket.id not in snapshot.claims:
            ledger.timers.end_patience(waiter, record.passed_since + ledger.settings.ageing)
    for lane, watching in heads.items():
        if watching is not None:
            ledger.watches.watch(lane, ledger.scope(watching))
    for ticket_id in snapshot.claims:
        waiter = ledger.waiters[ticket_id]
        ledger.place_claims.append(waiter)
        for scope in waiter.lane.scopes:
            scope.claimed += 1
