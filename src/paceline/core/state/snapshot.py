"""All of a Governor as one frozen value. A restored Governor behaves exactly like one that never stopped.

`msgspec.json.encode(snapshot)` and `msgspec.json.decode(data, type=Snapshot)` store it. Gates are stored by tag;
those of a newer version are kept and written back.
"""

from typing import TypeVar

import msgspec

from paceline.core.gates.order import encode_gate
from paceline.core.gates.rates import RATE_SPAN_SECONDS
from paceline.core.gates.usage_poll import UsagePoll
from paceline.core.limits import AdaptiveLimit, PlatformCap
from paceline.core.state.lane import Waiter
from paceline.core.state.ledger import Ledger
from paceline.core.state.scope import Scope
from paceline.core.values.rates import Rate
from paceline.core.values.settings import Cooldown, GovernorSettings, HeadroomMode
from paceline.core.values.tickets import Ticket
from paceline.core.values.verdicts import Effect

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
    began_at: float | None = None
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
    heard: int
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
        groups=tuple(
            GroupRecord(group.name, group.weight, group.accrued, group.accrued_at, group.live)
            for group in ledger.shares.groups.values()
        ),
        slots=tuple(
            SlotRecord(
                slot.ticket,
                slot.granted_at,
                slot.token,
                slot.expires_at,
                slot.proven_seq,
                slot.reported,
                slot.reclaim_at,
                slot.is_adopted,
                slot.runs is not None,
            )
            for slot in ledger.slots.values()
        ),
        waiters=tuple(_waiter_record(waiter) for waiter in ledger.waiters.values()),
        claims=tuple(waiter.ticket.id for waiter in ledger.place_claims),
        recent=tuple((at, tuple(scope.name for scope in scopes)) for at, scopes in ledger.recent if at > since),
        finished_seconds=ledger.shares.finished_seconds,
        finished_slots=ledger.shares.finished_slots,
        sweep_at=ledger.sweep_at,
        effects=tuple(ledger.effects),
    )


def _scope_record(scope: Scope) -> ScopeRecord:
    gates = {gate.TAG: encode_gate(gate) for gate in scope.gates.in_order if gate.IS_STORED}
    return ScopeRecord(
        name=scope.name,
        cooling=tuple(scope.cooling),
        adaptive=copied(scope.adaptive, AdaptiveLimit),
        platform=copied(scope.platform, PlatformCap),
        gates={**scope.gates.unknown, **gates},
        usage=copied(scope.usage, UsagePoll),
        mean_tokens=scope.tokens.mean,
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


def _waiter_record(waiter: Waiter) -> WaiterRecord:
    lane = waiter.lane
    watching = lane.watching.name if lane.head is waiter and lane.watching is not None else None
    return WaiterRecord(waiter.ticket, waiter.key, waiter.seq, waiter.enqueued_at, waiter.passed_since, watching)
