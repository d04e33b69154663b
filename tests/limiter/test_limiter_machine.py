"""The Limiter under a hypothesis state machine: tasks that ask, hold, fail and are cancelled at any moment."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from paceline import CapacityError, Deferred, Limiter, Slot, SlotTimeout
from paceline.core.signals import Usage
from paceline.limiter.governor_driver import UsageSource
from paceline.testing import VirtualClock

PATHS = ("umans", "anthropic/max-1/opus-4-6", "anthropic/max-1/sonnet-4-5")
SCOPES = ("runs", "umans", "anthropic", "anthropic/max-1", "anthropic/max-1/opus-4-6", "anthropic/max-1/sonnet-4-5")
SLOT_TIMEOUT = 300.0
DEFAULT_PAUSE = 5.0

paths = st.sampled_from(PATHS)
limits = st.none() | st.integers(1, 3)


def prefixes(path: str) -> set[str]:
    parts = path.split("/")
    return {"runs", *("/".join(parts[: n + 1]) for n in range(len(parts)))}


class LimiterMachine(RuleBasedStateMachine):
    """The model is what the tasks hold: counts must agree, nobody waits beside a free place, nothing is left over."""

    @initialize(table=st.dictionaries(st.sampled_from(SCOPES[1:]), st.integers(1, 3)), runs=limits, asks=st.booleans())
    def begin(self, table: dict[str, int], runs: int | None, asks: bool) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = VirtualClock(start=1_000.0)
        self.tasks: list[asyncio.Task[Slot]] = []
        self.held: list[Slot] = []
        self.paused = False
        self.asks_usage = asks
        self.run(self.open(table, runs))

    async def open(self, table: dict[str, int], runs: int | None) -> None:
        usage: dict[str, UsageSource] = {"umans": self.count_usage} if self.asks_usage else {}
        self.limiter = Limiter(
            limits=table,
            max_parallel_runs=runs,
            headroom="off",
            default_pause=DEFAULT_PAUSE,
            slot_timeout=SLOT_TIMEOUT,
            usage=usage,
            clock=self.clock,
        )

    async def count_usage(self) -> Usage | None:
        return Usage(concurrent_sessions=self.held_in("umans"))

    def run(self, steps: Coroutine[Any, Any, None]) -> None:
        async def all_of_it() -> None:
            await steps
            await self.clock.advance(0)

        self.loop.run_until_complete(all_of_it())
        self.collect()

    def collect(self) -> None:
        """Take in what the tasks got; a task that was cancelled or timed out got nothing."""
        for task in [task for task in self.tasks if task.done()]:
            self.tasks.remove(task)
            if not task.cancelled() and not isinstance(task.exception(), SlotTimeout):
                self.held.append(task.result())

    def held_in(self, scope: str) -> int:
        return sum(scope in prefixes(slot.scope) for slot in self.held)

    # -- what tasks do --------------------------------------------------------------------------------

    @rule(path=paths, priority=st.integers(-2, 2), timeout=st.none() | st.floats(0.1, 20.0))
    def acquire(self, path: str, priority: int, timeout: float | None) -> None:
        async def start() -> None:
            waiting = self.limiter.acquire(path, priority=priority, timeout=timeout)
            self.tasks.append(asyncio.ensure_future(waiting))

        self.run(start())

    @rule(path=paths)
    def try_acquire(self, path: str) -> None:
        async def start() -> None:
            answer = self.limiter.try_acquire(path)
            if isinstance(answer, Deferred):
                assert answer.scope in prefixes(path)
            else:
                self.held.append(answer)

        self.run(start())

    @precondition(lambda self: self.held)
    @rule(data=st.data(), twice=st.booleans(), refused=st.booleans())
    def release(self, data: st.DataObject, twice: bool, refused: bool) -> None:
        async def end() -> None:
            slot = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
            if refused:
                slot.rate_limited()
                self.paused = True
            slot.release()
            if twice:
                slot.release()

        self.run(end())

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        async def end() -> None:
            self.tasks[data.draw(st.integers(0, len(self.tasks) - 1))].cancel()

        self.run(end())

    @precondition(lambda self: self.held and self.tasks)
    @rule(data=st.data())
    def cancel_in_the_tick_of_a_release(self, data: st.DataObject) -> None:
        """The task may already have been granted the slot when the cancellation arrives."""

        async def end() -> None:
            self.held.pop(data.draw(st.integers(0, len(self.held) - 1))).release()
            self.tasks[data.draw(st.integers(0, len(self.tasks) - 1))].cancel()

        self.run(end())

    # -- what others do -------------------------------------------------------------------------------

    @rule(scope=st.sampled_from(SCOPES), limit=limits)
    def set_limit(self, scope: str, limit: int | None) -> None:
        async def change() -> None:
            self.limiter.set_limit(scope, limit)

        self.run(change())

    @rule(path=paths)
    def report_rate_limit(self, path: str) -> None:
        async def report() -> None:
            self.limiter.report_rate_limit(path)

        self.paused = True
        self.run(report())

    @rule(seconds=st.floats(0.0, 30.0))
    def advance(self, seconds: float) -> None:
        async def pass_time() -> None:
            for slot in self.held:
                slot.renew()
            await self.clock.advance(seconds)

        self.run(pass_time())
        self.paused = self.paused and seconds < DEFAULT_PAUSE

    # -- what must hold -------------------------------------------------------------------------------

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "limiter"):
            return
        assert self.limiter.status().active_runs == len(self.held)
        for scope in SCOPES:
            status = self.limiter.scope_status(scope)
            assert (0 if status is None else status.in_flight) == self.held_in(scope), scope

    @invariant()
    def nobody_waits_beside_a_free_place(self) -> None:
        if not hasattr(self, "limiter") or self.paused or self.asks_usage:
            return
        statuses = [self.limiter.scope_status(scope) for scope in SCOPES]
        open_scopes = {s.scope for s in statuses if s is not None and (s.limit is None or s.in_flight < s.limit)}
        for scope in PATHS:
            status = self.limiter.scope_status(scope)
            assert not (status is not None and status.queued and prefixes(scope) <= open_scopes), scope

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        try:
            self.loop.run_until_complete(self.close())
        finally:
            self.loop.close()

    async def close(self) -> None:
        for slot in self.held:
            slot.release()
        await self.clock.advance(0)
        self.collect()
        await self.limiter.aclose()
        await self.clock.advance(0)
        for task in self.tasks:
            assert task.done(), "closing leaves no waiter pending"
            assert task.cancelled() or isinstance(task.exception(), CapacityError) or task.result()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"closing leaves {left} behind"


TestLimiterMachine = LimiterMachine.TestCase
TestLimiterMachine.settings = settings(max_examples=60, stateful_step_count=30)
