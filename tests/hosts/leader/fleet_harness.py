"""The fleet harness: an engine in virtual time with workers on simulated hosts, which lose links, workers and power."""

import asyncio
import contextlib
from pathlib import Path

import msgspec

from paceline.errors import LinkDown
from paceline.hosts.leader.registry import HostRegistry
from paceline.hosts.messages import Joined, JoinRequest, Orders, OrdersRequest, Reports, ReportsTaken
from paceline.hosts.worker.sessions import HostContext
from paceline.hosts.worker.worker import Worker
from paceline.leadership.host_lease import HostLease
from paceline.settings import HostSettings
from paceline.simulation.executor import ScriptedExecutor
from paceline.testing.direct_link import DirectLink
from paceline.testing.engine_harness import EngineHarness, Script, succeed

SUPERVISOR_SECONDS = 5.0
"""How often supervisors read the lease of their host."""


class SimulatedHost:
    """One host: its sessions outlive its workers, and end with its lease, as they do under real supervisors."""

    def __init__(self, name: str, fleet: "FleetHarness", folder: Path, script: Script) -> None:
        self.name = name
        self.executor = ScriptedExecutor(script, fleet.clock)
        self.link = DirectLink(_LeaderSide(fleet, name), fleet.clock)
        self._fleet = fleet
        self._home = folder / name
        self._home.mkdir(parents=True, exist_ok=True)
        self._worker: Worker | None = None
        self._running: asyncio.Task[None] | None = None
        self._supervising: asyncio.Task[None] | None = None

    def start_worker(self) -> None:
        """Start the worker, if none runs."""
        if self._running is not None:
            return
        clock = self._fleet.clock
        self._worker = Worker(
            self.link,
            self.executor,
            self._home,
            HostContext(identity=self.name, environ={"HOME": "/home/ada"}),
            clock=clock,
            lease=self._lease(),
        )
        self._running = asyncio.create_task(self._worker.run())
        if self._supervising is None:
            self._supervising = asyncio.create_task(self._supervise())

    async def kill_worker(self) -> None:
        """Kill the worker as `kill -9` does. Its sessions continue."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            self._running = None

    async def reboot(self) -> None:
        """Lose everything that runs, and start a worker again."""
        await self.kill_worker()
        self.executor.reboot()
        self.start_worker()

    def live_units(self) -> list[str]:
        """Return the units whose sessions run here."""
        live = set(self.executor.live())
        return [launch.env["PACELINE_UNIT"] for launch in self.executor.started if launch.attempt_id in live]

    async def aclose(self) -> None:
        await self.kill_worker()
        if self._supervising is not None:
            self._supervising.cancel()
            await asyncio.gather(self._supervising, return_exceptions=True)

    def _lease(self) -> HostLease:
        return HostLease(self._home, elapsed=self._fleet.clock.now)

    async def _supervise(self) -> None:
        """End all sessions once the lease in the file is over, whether a worker runs or not."""
        while True:
            if self._lease().is_over:
                self.executor.reboot()
            await self._fleet.clock.sleep(SUPERVISOR_SECONDS)


class FleetHarness(EngineHarness):
    """An `EngineHarness` with hosts, by name. Only workers and the engine can be disturbed, never the store."""

    def __init__(
        self, folder: Path, hosts: dict[str, HostSettings], script: Script = succeed, *, pool: int | None = None
    ) -> None:
        super().__init__(script, pool=pool, heartbeat=1.0)
        limits = {f"host:{name}": host.max_sessions for name, host in hosts.items()}
        governor = msgspec.structs.replace(self.settings.governor, limits=self.settings.governor.limits | limits)
        self.settings = msgspec.structs.replace(self.settings, hosts=hosts, governor=governor)
        self.engine = self.new_engine()
        self.machines = {name: SimulatedHost(name, self, folder, script) for name in hosts}
        self.is_leading = False

    async def run(self, seconds: float) -> None:
        """Move time forward with a running engine; start one if none runs."""
        self.is_leading = True
        await super().run(seconds)

    async def crash(self) -> None:
        """Kill the engine, and start a new one with the next `run`."""
        self.is_leading = False
        await super().crash()

    def doubled(self) -> list[str]:
        """Return the units that have more than one live session now."""
        live = [unit for host in self.machines.values() for unit in host.live_units()]
        return sorted({unit for unit in live if live.count(unit) > 1})

    async def __aexit__(self, *details: object) -> None:
        for host in self.machines.values():
            await host.aclose()
        with contextlib.suppress(asyncio.CancelledError):
            await super().__aexit__(*details)


class _LeaderSide:
    """The engine that leads now, as a worker reaches it."""

    def __init__(self, fleet: FleetHarness, host: str) -> None:
        self._fleet = fleet
        self._host = host

    async def join(self, request: JoinRequest) -> Joined:
        self._check()
        return self._hosts().join(self._host, request)

    async def orders(self, request: OrdersRequest) -> Orders:
        self._check()
        engine = self._fleet.engine
        orders = await self._hosts().orders(self._host, request)
        if engine is not self._fleet.engine:
            raise LinkDown("the leader was killed")
        return orders

    async def report(self, reports: Reports) -> ReportsTaken:
        self._check()
        return self._hosts().report(self._host, reports)

    def _hosts(self) -> HostRegistry:
        engine = self._fleet.engine
        return engine.hosts

    def _check(self) -> None:
        if not self._fleet.is_leading:
            raise LinkDown("nobody leads")
