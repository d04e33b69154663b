"""The asyncio interface of the Governor: slots to wait for, limits to set, signals to report, status to read.

Not thread-safe, but for the status: it belongs to one event loop. Other threads, and scripts without a loop, use
`limiter.from_thread` (`threads.py`).
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Self, Unpack

import msgspec

from paceline.clock import Clock, SystemClock
from paceline.core import Deferred, Governor, GovernorSettings, ScopeStatus, Snapshot
from paceline.core.signals import RateLimited, Signal
from paceline.core.state.tables import PatternTable
from paceline.core.values.scopes import RUNS, SESSIONS, canonical_scope, is_provider_scope
from paceline.core.values.settings import Cooldown, HeadroomMode, Rate, check_rate
from paceline.core.values.validation import check_callable, check_limit, check_mapping
from paceline.errors import InvalidSnapshot
from paceline.events import Event
from paceline.limiter.governor_driver import EventListener, GovernorDriver, UsageSource
from paceline.limiter.slot import AdmissionRequest, RequestOptions, Slot, WaitOptions
from paceline.limiter.slot_admission import NamedSlots, SlotAdmission, SlotContext
from paceline.limiter.threads import FromThread, read_beside_loop

CLOSE_SECONDS = 1.0
"""How long `aclose` waits for cancelled usage polls. One that ignores its cancellation must not block the program."""


class LimiterStatus(msgspec.Struct, frozen=True):
    """The global pool of sessions and runs. None means unlimited."""

    active_sessions: int
    active_runs: int
    max_parallel_sessions: int | None
    max_parallel_runs: int | None
    available_session_slots: int | None
    available_run_slots: int | None

    @classmethod
    def of(cls, sessions: ScopeStatus, runs: ScopeStatus) -> Self:
        """Return the use of the pool from the status of its two scopes."""
        return cls(
            active_sessions=sessions.in_flight,
            active_runs=runs.in_flight,
            max_parallel_sessions=sessions.configured,
            max_parallel_runs=runs.configured,
            available_session_slots=_available(sessions),
            available_run_slots=_available(runs),
        )


def _available(status: ScopeStatus) -> int | None:
    return None if status.limit is None else max(0, status.limit - status.in_flight - status.cooling)


class CooldownsInUse(dict[str, Cooldown]):
    """Cooldowns by scope or pattern. `sources` has the entry that each comes from, or "default"."""

    def __init__(self, configured: dict[str, Cooldown], statuses: Iterable[ScopeStatus]) -> None:
        super().__init__(configured)
        self.sources = {scope: scope for scope in configured}
        table = PatternTable(configured, {})
        for status in statuses:
            if is_provider_scope(status.scope) and status.scope not in self:
                entry = table.entry_on_path(status.scope)
                self[status.scope], self.sources[status.scope] = status.cooldown, entry[0] if entry else "default"


class Limiter:
    """Limits sessions and runs over a global pool, providers, accounts and models at once."""

    def __init__(
        self,
        *,
        max_parallel_sessions: int | None = 100,
        max_parallel_runs: int | None = 50,
        limits: dict[str, int] | None = None,
        rates: Mapping[str, Rate | dict[str, int]] | None = None,
        cooldown: Cooldown = 0.0,
        headroom: HeadroomMode = "adaptive",
        default_pause: float = 30.0,
        slot_timeout: float = 300.0,
        watchdog_interval: float = 30.0,
        ageing: float = 60.0,
        usage: dict[str, UsageSource] | None = None,
        clock: Clock | None = None,
        on_event: Callable[[Event], object] | None = None,
        restore: Snapshot | None = None,
    ) -> None:
        pool: dict[str, int | None] = {
            SESSIONS: check_limit(max_parallel_sessions, "max_parallel_sessions"),
            RUNS: check_limit(max_parallel_runs, "max_parallel_runs"),
        }
        sources = _check_sources(usage)
        if on_event is not None:
            check_callable(on_event, "on_event")
        settings = GovernorSettings(
            limits={**pool, **check_mapping(limits, "limits")},
            rates={
                scope: check_rate(rate, f"rates[{scope!r}]") for scope, rate in check_mapping(rates, "rates").items()
            },
            cooldown=cooldown,
            headroom=headroom,
            usage_scopes=tuple(sources),
            default_pause=default_pause,
            slot_timeout=slot_timeout,
            watchdog_interval=watchdog_interval,
            ageing=ageing,
        )
        clock = SystemClock() if clock is None else clock
        governor = Governor(settings, now=clock.now()) if restore is None else _restored(restore, settings, clock.now())
        driver = GovernorDriver(governor, clock=clock, usage=sources)
        if on_event is not None:
            driver.listener = EventListener(on_event)
            driver.subscribe_events(driver.listener.deliver)
        self._compose(driver)
        if restore is not None:
            self._take_over(restore)

    @classmethod
    def over(cls, driver: GovernorDriver) -> "Limiter":
        """Return a limiter over a Governor that admits other tickets too, such as an engine's."""
        limiter = cls.__new__(cls)
        limiter._compose(driver)
        return limiter

    def _compose(self, driver: GovernorDriver) -> None:
        self._driver = driver
        self._governor = driver.governor
        self._named = NamedSlots(driver)
        self._slots = SlotAdmission(driver, self._named, self.report)
        self._home = self._slots.home
        self.from_thread = FromThread(self._home, self._slots.enter, self.aclose)

    def _take_over(self, snapshot: Snapshot) -> None:
        """Count the slots of a process that is gone until their lease runs out or they are released by name."""
        tickets = [record.ticket for record in snapshot.slots]
        self._slots.skip_used(ticket.id for ticket in tickets)
        self._named.restore(tickets, snapshot.owners)
        self._governor.advance(now=self._driver.now())  # effects of the time between are nobody's
        self._driver.carry_out()

    @property
    def clock(self) -> Clock:
        return self._driver.clock

    # -- slots -------------------------------------------------------------------------------

    def slot(self, scope: str, **options: Unpack[WaitOptions]) -> SlotContext:
        """Return an `async with` block that waits for a slot and always releases it."""
        return SlotContext(self._slots, AdmissionRequest(scope, leased=False, **options))

    def slot_for(self, request: AdmissionRequest) -> SlotContext:
        """Return what `slot` does, for a whole request."""
        return SlotContext(self._slots, request)

    def acquire(self, scope: str, **options: Unpack[WaitOptions]) -> Coroutine[None, None, Slot]:
        """Wait for a slot. The caller releases it, and renews it within `slot_timeout`.

        `tokens` is how many the call is expected to use; budgets and rates of tokens count it.
        """
        return self._slots.enter(AdmissionRequest(scope, **options))

    def try_acquire(self, scope: str, **options: Unpack[RequestOptions]) -> Slot | Deferred:
        """Return a slot now, or the reason why there is none. Never waits."""
        return self._slots.try_enter(AdmissionRequest(scope, **options))

    def acquire_session(self, session: str, *, scope: str | None = None) -> None:
        """Take a slot for a whole session until it is released. Never waits. A session that has one keeps it."""
        self._named.acquire_session(session, scope)

    def acquire_run(self, session: str, run: str, *, scope: str | None = None) -> None:
        """Take a slot for one run until it, or its session, is released. Never waits. A run that has one keeps it."""
        self._named.acquire_run(session, run, scope)

    def release_run(self, run: str) -> None:
        """Release a run's slot. Idempotent."""
        self._named.release_run(run)

    def release_session(self, session: str) -> None:
        """Release the session's slot and those of all its runs. Idempotent."""
        self._named.release_session(session)

    # -- limits ------------------------------------------------------------------------------

    def set_limit(self, scope: str, limit: int | None) -> None:
        """Set the limit of a scope or pattern, and forget what was learnt there."""
        self._driver.call(self._governor.set_limit, scope, limit)

    def get_limit(self, scope: str) -> int | None:
        """Return the configured limit."""
        return self._governor.get_limit(scope)

    def remove_limit(self, scope: str) -> None:
        """Make the scope unlimited. Its live slots stay counted, and a pause stays."""
        self._driver.call(self._governor.remove_limit, scope)

    def restore_limit(self, scope: str) -> None:
        """Return to the configured limit: forget what was learnt."""
        self._driver.call(self._governor.restore_limit, scope)

    def limits(self) -> dict[str, int]:
        """Return every configured limit by scope or pattern. The global pool is in `status`."""
        return {scope: limit for scope, limit in self._governor.limits().items() if scope not in (SESSIONS, RUNS)}

    def set_cooldown(self, scope: str, cooldown: Cooldown) -> None:
        """Set how long a released slot still counts: seconds, or "auto" to learn it from usage readings."""
        self._governor.set_cooldown(scope, cooldown, now=self._driver.now())

    def get_cooldown(self, scope: str) -> float:
        return self._governor.get_cooldown(scope)

    def cooldowns(self) -> CooldownsInUse:
        """Return every cooldown that was set, by scope or pattern, and that of every known scope."""
        return CooldownsInUse(self._governor.cooldowns(), self.statuses())

    def lift_hold(self, scope: str) -> None:
        """Admit tickets to an account again, after a person fixed what blocked it."""
        self._driver.call(self._governor.lift_hold, scope)

    # -- signals and status ------------------------------------------------------------------

    def report(self, scope: str, signal: Signal) -> None:
        """Report what was learnt about a scope: any signal of `paceline.core.signals`."""
        self._driver.report(scope, signal)

    def report_rate_limit(self, scope: str, retry_after: float | None = None) -> None:
        self.report(scope, RateLimited(retry_after=retry_after))

    def status(self) -> LimiterStatus:
        """Return the use of the global pool."""
        sessions, runs = self.scope_status(SESSIONS), self.scope_status(RUNS)
        assert sessions is not None
        assert runs is not None
        return LimiterStatus.of(sessions, runs)

    def statuses(self) -> list[ScopeStatus]:
        """Return the status of every known scope."""
        if self._home.is_elsewhere:
            return read_beside_loop(lambda: self._governor.statuses(now=None))
        return self._driver.call(self._governor.statuses)

    def scope_status(self, scope: str) -> ScopeStatus | None:
        """Return the status of one scope, or None if it was never limited, requested or reported."""
        if self._home.is_elsewhere:
            return read_beside_loop(lambda: self._governor.status(scope, now=None))
        return self._driver.call(self._governor.status, scope)

    def demand(self, scope: str) -> tuple[int, int | None]:
        """Return how many slots of one scope are taken, cooling or waited for, and its effective limit."""
        return self._governor.demand(scope)

    def why(self, ticket_id: str) -> Deferred | None:
        """Return the reason why a ticket waits, or None if it does not wait."""
        return self._driver.call(self._governor.why, ticket_id)

    def snapshot(self) -> Snapshot:
        """Return the whole state as a value to store; `Limiter(..., restore=snapshot)` continues from it."""
        return msgspec.structs.replace(self._governor.snapshot(), owners=self._named.owners())

    # -- the end -------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """End all waits with `CapacityError`, stop the timer, and wait briefly for the polls to end."""
        if (loop := asyncio.get_running_loop()) is not self._home.loop:
            self._home.move_to(loop)
        polls = self.close()
        if polls:
            await asyncio.wait(polls, timeout=CLOSE_SECONDS)

    def close(self) -> list[asyncio.Task[None]]:
        """Do the same without waiting. Returns the polls that are still ending."""
        polls = self._driver.close()
        self._slots.close()
        return polls


def _check_sources(usage: dict[str, UsageSource] | None) -> dict[str, UsageSource]:
    sources = {canonical_scope(scope): source for scope, source in check_mapping(usage, "usage").items()}
    for scope, source in sources.items():
        check_callable(source, f"usage[{scope!r}]")
    return sources


def _restored(snapshot: Snapshot, settings: GovernorSettings, now: float) -> Governor:
    """Rebuild the Governor without its waiting tickets: the tasks that waited are gone."""
    if not isinstance(snapshot, Snapshot):
        raise InvalidSnapshot(f"restore takes a paceline.core.Snapshot; got {snapshot!r:.80}")
    without_waiters = msgspec.structs.replace(snapshot, waiters=(), claims=(), effects=())
    return Governor.restore(without_waiters, now=now, settings=settings)
