"""The sessions of a home while an engine on another machine leads.

That engine counts them and leaves them alone, because it can neither see nor end them. So a process that stands by in
their home reads their output, ends those that were cancelled, checks and delivers their work, and stores what came
of them. Signals go to the leader as commands. Never here: starting a session, or granting a slot.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from paceline.agents import AgentProfile
from paceline.clock import Clock
from paceline.engine.background_jobs import BackgroundJobs
from paceline.engine.cycle import Cycle
from paceline.engine.governor_state import load_governor
from paceline.engine.hosts.host import LocalHost
from paceline.engine.hosts.registry import HostRegistry
from paceline.engine.launcher import Launcher
from paceline.engine.leader_lease import LeaderLease
from paceline.engine.settings import EngineSettings
from paceline.engine.unit_events import Listeners
from paceline.engine.wake_up import WakeUp
from paceline.executors import Executor
from paceline.limiter.governor_driver import GovernorDriver
from paceline.shared_leadership import OwnHome
from paceline.store import Store


class SessionKeeper:
    """Brings the sessions of one home to their ends. `fleet` knows which ones those are."""

    def __init__(
        self,
        settings: EngineSettings,
        *,
        store: Store,
        executor: Executor,
        clock: Clock,
        agents: Callable[[str], AgentProfile],
        environ: Mapping[str, str],
        fleet: OwnHome,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._jobs = BackgroundJobs(lambda: None)
        lead = LeaderLease(store, "keeper", lease=settings.lease)  # it is never taken: it knows what runs elsewhere
        lead.fleet = fleet
        fleet.read()
        governor = load_governor(store, settings.governor, clock.now())
        self._driver = driver = GovernorDriver(governor, clock=clock, usage={})
        local = LocalHost(executor, self._jobs, home=Path(settings.home), environ=environ, lead=lead)
        hosts = HostRegistry(store, local, settings=settings, owner=lead.owner, now=clock.now, is_leader=False)
        launcher = Launcher(hosts, settings, functools.cache(agents), lead)
        self._cycle = Cycle(store, driver, launcher, settings, listeners=Listeners(), woken=WakeUp())
        self._cycle.journal.is_leader = False

    def make_pass(self, leader: str) -> Iterator[None]:
        """Read the sessions, and store how those have ended that are over. Yields where other work may go between.

        Raise `LeadLost` as soon as another owner than `leader` leads: it may have adopted the sessions.
        """
        with self._store.while_leading(leader):
            yield from self._cycle.make_keeping_pass()

    @property
    def has_work(self) -> bool:
        """Whether sessions of this home are to be brought to their ends."""
        self._fleet.read()
        return self._fleet.has_sessions()

    def close(self) -> None:
        """Leave the sessions alone. They continue."""
        self._jobs.close()
        self._driver.close()
