"""The fleet at a glance: the engine, the pool, the units and the next resume."""

from collections.abc import Iterable
from importlib.metadata import version
from typing import Final, Literal

import msgspec

from paceline.core.values.fields import fields_of
from paceline.core.values.scopes import SESSIONS
from paceline.store import Campaign, UnitCounts
from paceline.store.interface import UnitTotals
from paceline.views.campaigns import CompletionRate, Throughput
from paceline.views.capacity import next_resume_at
from paceline.views.fleet import FleetState
from paceline.views.gateway_calls import GatewayCounts

VERSION: Final = version("paceline")


class EngineProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process with an engine, and since when it leads or stands by. `host` is set where several machines share it."""

    pid: int
    since: float
    leads: bool = True
    host: str | None = None
    leader: str | None = None
    """Who leads, for a process that stands by."""
    trouble: str | None = None
    """Why nothing can be stored now."""


class EngineState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An engine. `paused`: it leads, and campaigns are paused and none is active. `standby`: another one leads."""

    state: Literal["leading", "standby", "paused"]
    since: float
    version: str
    pid: int
    host: str | None = None
    """The machine, where several share a store."""
    leader: str | None = None
    """Who leads, if this process stands by."""
    trouble: str | None = None
    """Why nothing can be stored now, so that nothing starts."""


class StoppedEngine(msgspec.Struct, frozen=True, kw_only=True):
    """No engine leads."""

    state: Literal["stopped"] = "stopped"
    since: None = None
    version: str = VERSION
    pid: None = None


class PoolState(msgspec.Struct, frozen=True, kw_only=True):
    """`sessions` is the size, null for no limit. `running` counts sessions; `waiting` and `parked` count units."""

    sessions: int | None
    running: int
    waiting: int
    parked: int


class StatusSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The engine, the pool, the units of all campaigns, and when the next parked unit resumes."""

    engine: EngineState | StoppedEngine
    pool: PoolState
    units: UnitTotals
    next_resume_at: float | None
    gateway: GatewayCounts | None
    """Null where the gateway is another process, which was not asked or did not answer."""


class Status(StatusSummary, frozen=True, kw_only=True):
    """The status under a leading engine.

    `throughput` is how many units were done in the last hour, `eta` when the rest will be at that speed. `pace` is how
    many units an hour brings, also while the work is younger than that.
    """

    engine: EngineState
    throughput: int
    pace: float
    eta: float | None


def read_status_summary(
    fleet: FleetState, leader: EngineProcess | None, gateway: GatewayCounts | None
) -> StatusSummary:
    """Return the status. `leader` is None where no engine leads, `gateway` where nothing is known of its calls."""
    total = total_counts(fleet.counts.values())
    return StatusSummary(
        engine=StoppedEngine() if leader is None else engine_state(unfinished_campaigns(fleet), leader),
        pool=PoolState(
            sessions=fleet.governor.get_limit(SESSIONS),
            running=fleet.scopes[SESSIONS].in_flight if SESSIONS in fleet.scopes else total.running,
            waiting=total.todo - total.parked,
            parked=total.parked,
        ),
        units=UnitTotals(**fields_of(UnitTotals, total)),
        next_resume_at=next_resume_at(fleet, fleet.campaigns),
        gateway=gateway,
    )


def read_status(
    fleet: FleetState, leader: EngineProcess, throughput: Throughput, gateway: GatewayCounts | None
) -> Status:
    """Return the status with the throughput, which must have caught up with the store."""
    summary = read_status_summary(fleet, leader, gateway)
    rate = completion_rate(fleet, throughput)
    return Status(
        **msgspec.structs.asdict(summary),
        throughput=rate.per_hour,
        pace=rate.pace,
        eta=rate.eta_after(summary.next_resume_at),
    )


def completion_rate(fleet: FleetState, throughput: Throughput) -> CompletionRate:
    """Return how fast the active campaigns get done together."""
    active = [campaign.name for campaign in fleet.campaigns if campaign.state == "active"]
    left = {name: fleet.counts_of(name).todo + fleet.counts_of(name).running for name in active}
    return throughput.rate_of_all(left, fleet.now)


def unfinished_campaigns(fleet: FleetState) -> list[Campaign]:
    """Return the campaigns with units that wait or run: only they can be paused."""
    counts = {campaign.name: fleet.counts_of(campaign.name) for campaign in fleet.campaigns}
    return [each for each in fleet.campaigns if counts[each.name].todo or counts[each.name].running]


def engine_state(campaigns: Iterable[Campaign], leader: EngineProcess) -> EngineState:
    """Return the state of the engine that leads.

    An engine is `paused` only where a person paused what it would run: resuming would start something. With nothing
    but finished or cancelled campaigns it leads and waits for work.
    """
    states = {campaign.state for campaign in campaigns}
    is_paused = "paused" in states and "active" not in states
    state: Literal["leading", "standby", "paused"] = "paused" if is_paused else "leading"
    return EngineState(**fields_of(EngineState, leader), state=state if leader.leads else "standby", version=VERSION)


def total_counts(counts: Iterable[UnitCounts]) -> UnitCounts:
    each = list(counts)
    return UnitCounts(**{name: sum(getattr(count, name) for count in each) for name in UnitCounts.__struct_fields__})


def total_units(counts: UnitCounts) -> int:
    """Return how many units there are. Parked ones are among the `todo`."""
    return counts.todo + counts.running + counts.done + counts.cancelled + stopped_units(counts)


def stopped_units(counts: UnitCounts) -> int:
    return counts.unverified + counts.quarantined + counts.held
