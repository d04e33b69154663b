"""The hosts of a leader: who has joined, what each is ordered to do, and when a silent one is lost."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from paceline.agents import load_agent
from paceline.agents.dialect import RunSummary
from paceline.agents.launch import Task
from paceline.core import GovernorSettings
from paceline.core.signals import Succeeded
from paceline.engine.settings import EngineSettings
from paceline.errors import EngineBusy, HostLost, HostTaken, NotJoined, UnknownName, VersionMismatch
from paceline.executors.interface import SessionState
from paceline.hosts.jobs import OutputPiece, read_output
from paceline.hosts.leader.host import LOSS_MARGIN_SECONDS, SILENT_SECONDS, LocalHost, RemoteSession
from paceline.hosts.leader.registry import HostRegistry
from paceline.hosts.messages import (
    PROTOCOL,
    Call,
    CallReport,
    HostFacts,
    HostLoad,
    JoinRequest,
    Order,
    OrdersRequest,
    Reports,
    SessionOrder,
    SessionReport,
    Stop,
    StoredHost,
    Sweep,
    save_hosts,
)
from paceline.leadership.election import LeaderLease
from paceline.settings import HostSettings
from paceline.simulation.clock import VirtualClock
from paceline.simulation.executor import Run, ScriptedExecutor
from paceline.store import Campaign, SqliteStore, UnitSpec
from paceline.testing.engine_harness import InlineJobs

NOW = 1_794_705_600.0
LEASE = 600.0
FACTS = HostFacts(
    version="1", machine="box1/0", hostname="box1", home="/home/ada/w", user_home="/home/ada", cpus=4, memory=1 << 34
)
RUNNING = SessionState(phase="running", pid=7)
ENDED = SessionState(phase="ended", exit_code=0, cause="exit")


class Leader:
    """A registry over a store that outlives it, in virtual time."""

    def __init__(self) -> None:
        self.clock = VirtualClock(NOW)
        self.store = SqliteStore.in_memory()
        self.settings = EngineSettings(
            governor=GovernorSettings(), hosts={"box1": HostSettings(name="box1", host_lease=LEASE)}
        )
        self.events: list[str] = []
        self.restart("one")

    def restart(self, owner: str, own: str | None = None) -> None:
        """Begin again with a new engine. `own` is the name of its machine in the fleet."""
        lead = LeaderLease(self.store, owner, lease=60.0)
        executor = ScriptedExecutor(lambda _: Run(), self.clock)
        local = LocalHost(executor, InlineJobs(lambda: None), home=Path("/home/leader"), environ={}, lead=lead)
        self.hosts = HostRegistry(
            self.store,
            local,
            configured=self.settings.hosts,
            owner=owner,
            now=self.clock.now,
            elapsed=self.clock.now,
            own={} if own is None else {own: StoredHost(worker=f"home of {own}", host_lease=None, facts=FACTS)},
            emit=lambda name, **_: self.events.append(name),
        )
        self.hosts.worker_settings = self.settings.for_workers(None)

    def pass_time(self, seconds: float) -> None:
        self.clock.step(seconds)

    @property
    def presence(self) -> str:
        (state,) = self.hosts.states()
        return state.presence


class PaperWorker:
    """A worker that only writes down its orders."""

    def __init__(self, leader: Leader, worker: str = "home-1") -> None:
        self.leader = leader
        self.worker = worker
        self.reported = 0

    def join(self, *attempts: str, protocol: int = PROTOCOL) -> None:
        request = JoinRequest(worker=self.worker, facts=FACTS, attempts=attempts, protocol=protocol)
        self.joining = self.leader.hosts.join("box1", request).joining
        self.seen = self.reported = 0

    async def orders(self, *, confirm: bool = True) -> list[Order]:
        got = await self.leader.hosts.orders("box1", OrdersRequest(joining=self.joining, after=self.seen))
        if got.orders and confirm:
            self.seen = got.orders[-1][0]
        return [order for _, order in got.orders]

    def report(self, *reports: SessionReport | CallReport, again: bool = False) -> int:
        first = self.reported + (0 if again else 1)
        numbered = [(first + n, report) for n, report in enumerate(reports)]
        if not again:
            self.reported += len(reports)
        sent = Reports(joining=self.joining, load=HostLoad(), reports=tuple(numbered))
        return self.leader.hosts.report("box1", sent).through


@pytest.fixture
def leader() -> Leader:
    return Leader()


@pytest.fixture
def worker(leader: Leader) -> PaperWorker:
    return PaperWorker(leader)


def order_of(attempt_id: str) -> SessionOrder:
    task = Task(unit_id="night/u0", attempt_id=attempt_id, prompt="go", cwd="/repo")
    return SessionOrder(profile=load_agent("claude"), task=task)


def started(leader: Leader, attempt_id: str) -> RemoteSession:
    handle = leader.hosts.of("max-1#box1").start(order_of(attempt_id))
    assert isinstance(handle, RemoteSession)
    return handle


def follow(attempt_id: str) -> SessionOrder:
    return msgspec.structs.replace(order_of(attempt_id), is_begun=True)


def running(attempt_id: str, **more: object) -> SessionReport:
    return SessionReport(attempt_id=attempt_id, state=RUNNING, **more)  # type: ignore[arg-type]


# -- orders and reports ------------------------------------------------------------------------------


async def test_an_order_is_repeated_until_the_worker_confirms_it(leader: Leader, worker: PaperWorker) -> None:
    worker.join()
    await worker.orders()
    started(leader, "a1")

    once = await worker.orders(confirm=False)
    again = await worker.orders()
    after = await worker.orders()

    assert (once, again, after) == ([order_of("a1")], [order_of("a1")], [])


async def test_a_session_is_over_once_the_worker_has_reported_its_end(leader: Leader, worker: PaperWorker) -> None:
    worker.join()
    handle = started(leader, "a1")

    worker.report(running("a1", signals=(Succeeded(),)))
    seen = handle.read(NOW)
    worker.report(SessionReport(attempt_id="a1", state=ENDED, summary=RunSummary(outcome="success", answer="done")))

    assert seen == [Succeeded()]
    assert handle.state() == ENDED
    assert (handle.read(NOW), handle.facts.answer, handle.read(NOW)) == ([], "done", [])


async def test_a_repeated_report_is_taken_once(leader: Leader, worker: PaperWorker) -> None:
    worker.join()
    handle = started(leader, "a1")
    worker.report(running("a1", signals=(Succeeded(),)))

    through = worker.report(running("a1", signals=(Succeeded(),)), again=True)

    assert through == 1
    assert (handle.read(NOW), handle.read(NOW)) == ([Succeeded()], [])


# -- joining -----------------------------------------------------------------------------------------


async def test_a_worker_that_joins_again_follows_what_it_has_and_starts_what_it_never_got(
    leader: Leader, worker: PaperWorker
) -> None:
    worker.join()
    handles = {name: started(leader, name) for name in ("has", "never-got", "lost-its-folder")}
    worker.report(running("has"), running("lost-its-folder"))
    leader.hosts.holder_of(handles["has"]).stop(handles["has"])

    worker.join("has")

    assert await worker.orders() == [
        follow("has"),
        Stop(attempt_id="has", grace=10.0),
        order_of("never-got"),
        follow("lost-its-folder"),
        Sweep(keep=("has", "never-got", "lost-its-folder")),
    ]
    before = {name: handle.state().phase for name, handle in handles.items()}
    worker.report(SessionReport(attempt_id="lost-its-folder", state=None))
    assert before == {"has": "running", "never-got": "running", "lost-its-folder": "running"}
    assert handles["lost-its-folder"].state().phase == "lost"


async def test_a_joining_that_arrives_late_loses_no_session(leader: Leader, worker: PaperWorker) -> None:
    worker.join()
    handle = started(leader, "a1")
    worker.report(running("a1"))

    PaperWorker(leader).join()  # a copy of the first request, from before the session: nobody uses this joining
    worker.join("a1")

    assert handle.state() == RUNNING


async def test_a_home_that_is_used_from_another_machine_waits_until_nothing_runs(
    leader: Leader, worker: PaperWorker
) -> None:
    worker.join()
    handle = started(leader, "a1")
    moved = msgspec.structs.replace(FACTS, machine="box7/0", hostname="box7")
    request = JoinRequest(worker="home-1", facts=moved)
    with pytest.raises(EngineBusy, match="until its lease is over; ask again"):
        leader.hosts.join("box1", request)

    leader.hosts.holder_of(handle).archive(handle)

    assert leader.hosts.join("box1", request).leader == "one"


async def test_a_session_that_the_worker_never_began_is_lost(leader: Leader, worker: PaperWorker) -> None:
    leader.restart("two")
    handle = leader.hosts.of("#box1").adopt(order_of("a1"))
    worker.join()
    worker.report(SessionReport(attempt_id="a1", state=None))
    assert handle is not None
    assert handle.state() == SessionState(phase="lost", message="it never began on box1")


async def test_an_archived_session_is_put_away_even_if_the_worker_was_gone(leader: Leader, worker: PaperWorker) -> None:
    worker.join()
    handle = started(leader, "a1")
    await worker.orders()
    leader.hosts.holder_of(handle).archive(handle)

    worker.join("a1")

    assert await worker.orders() == [Sweep(keep=())]


async def test_requests_of_an_earlier_joining_are_refused(leader: Leader, worker: PaperWorker) -> None:
    worker.join()
    before = worker.joining
    worker.join()
    worker.joining = before
    with pytest.raises(NotJoined):
        await worker.orders()
    with pytest.raises(NotJoined):
        worker.report()


async def test_a_host_has_one_worker_until_that_is_lost(leader: Leader, worker: PaperWorker) -> None:
    worker.join()
    other = PaperWorker(leader, "home-2")
    with pytest.raises(HostTaken, match="host box1 has a worker already"):
        other.join()

    leader.pass_time(LEASE + LOSS_MARGIN_SECONDS + 1)
    leader.hosts.step()

    other.join()
    assert leader.presence == "joined"


async def test_a_worker_of_another_version_and_an_unknown_host_are_refused(leader: Leader, worker: PaperWorker) -> None:
    with pytest.raises(VersionMismatch, match="install the same version on both"):
        worker.join(protocol=99)
    with pytest.raises(UnknownName, match="there is no host 'box9'"):
        leader.hosts.join("box9", JoinRequest(worker="w", facts=FACTS))
    assert leader.presence == "absent"


# -- silence -----------------------------------------------------------------------------------------


async def test_a_silent_host_keeps_its_sessions_until_its_lease_and_the_margin_are_over(
    leader: Leader, worker: PaperWorker
) -> None:
    worker.join()
    handle = started(leader, "a1")

    leader.pass_time(LEASE + LOSS_MARGIN_SECONDS)
    leader.hosts.step()
    before = leader.presence, handle.state().phase
    leader.pass_time(1.0)
    leader.hosts.step()

    assert before == ("silent", "running")
    assert (leader.presence, handle.state().phase) == ("lost", "lost")
    assert leader.events == ["host.joined", "host.lost"]


async def test_a_host_that_speaks_now_and_then_is_never_lost(leader: Leader, worker: PaperWorker) -> None:
    worker.join()
    handle = started(leader, "a1")
    for _ in range(10):
        leader.pass_time(LEASE)
        worker.report()
        leader.hosts.step()
    leader.pass_time(SILENT_SECONDS + 1)
    assert (leader.presence, handle.state().phase) == ("silent", "running")


async def test_a_new_leader_waits_for_the_whole_lease_from_its_own_start(leader: Leader, worker: PaperWorker) -> None:
    worker.join()
    leader.pass_time(LEASE)
    shorter = {"box1": HostSettings(name="box1", host_lease=60.0)}  # the worker goes by the lease that it was given
    leader.settings = msgspec.structs.replace(leader.settings, hosts=shorter)

    leader.restart("two")
    handle = leader.hosts.of("#box1").adopt(order_of("a1"))
    assert handle is not None
    leader.pass_time(LEASE + LOSS_MARGIN_SECONDS)
    leader.hosts.step()
    before = handle.state().phase
    leader.pass_time(1.0)
    leader.hosts.step()

    assert (before, handle.state().phase) == ("running", "lost")


async def test_a_shorter_lease_counts_only_once_the_worker_uses_it(leader: Leader, worker: PaperWorker) -> None:
    worker.join()
    shorter = {"box1": HostSettings(name="box1", host_lease=60.0)}
    leader.settings = msgspec.structs.replace(leader.settings, hosts=shorter)
    leader.restart("two")

    worker.join()  # its answer may be lost, and then the worker still goes by the lease before
    leader.pass_time(LEASE)
    leader.hosts.step()
    unconfirmed = leader.presence
    worker.report()
    leader.pass_time(60.0 + LOSS_MARGIN_SECONDS + 1)
    leader.hosts.step()

    assert (unconfirmed, leader.presence) == ("silent", "lost")


async def test_a_host_that_was_removed_is_forgotten_once_nothing_runs_there(
    leader: Leader, worker: PaperWorker
) -> None:
    worker.join()
    handle = started(leader, "a1")
    leader.settings = msgspec.structs.replace(leader.settings, hosts={})
    leader.restart("two")
    kept = leader.hosts.of("#box1").adopt(handle.order)
    assert kept is not None
    leader.hosts.read_settings()
    before = [state.name for state in leader.hosts.states()]

    leader.hosts.holder_of(kept).archive(kept)
    leader.hosts.read_settings()

    assert (before, leader.hosts.states()) == (["box1"], [])


# -- work --------------------------------------------------------------------------------------------


async def test_work_of_a_host_ends_with_its_report(leader: Leader, worker: PaperWorker) -> None:
    worker.join()
    await worker.orders()
    job = leader.hosts.of("#box1").jobs.start(read_output, "a1", "stdout", None, 100)
    leader.hosts.step()
    (call,) = await worker.orders()
    assert isinstance(call, Call)
    was_over = job.done()

    piece = OutputPiece(data=b"hello", position=5, is_complete=True)
    worker.report(CallReport(call_id=call.call_id, result=msgspec.Raw(msgspec.json.encode(piece))))
    leader.hosts.step()

    assert (was_over, job.done(), job.result()) == (False, True, piece)


async def test_a_read_that_was_given_up_leaves_nothing_to_repeat(leader: Leader, worker: PaperWorker) -> None:
    worker.join()
    await worker.orders()
    jobs = leader.hosts.of("#box1").jobs
    for _ in range(3):
        job = jobs.start(read_output, "a1", "stdout", None, 100)
        leader.hosts.step()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.wrap_future(job)
    *_, last = await worker.orders()
    assert isinstance(last, Call)

    piece = OutputPiece(data=b"late", position=4, is_complete=True)
    worker.report(CallReport(call_id=last.call_id, result=msgspec.Raw(msgspec.json.encode(piece))))
    leader.hosts.step()
    worker.join()

    assert (await worker.orders(), leader.hosts.remote("box1").jobs.is_busy) == ([Sweep(keep=())], False)


async def test_nothing_begins_on_a_lost_host(leader: Leader, worker: PaperWorker) -> None:
    worker.join()
    leader.pass_time(LEASE + LOSS_MARGIN_SECONDS + 1)
    leader.hosts.step()
    host = leader.hosts.of("#box1")

    job = host.jobs.start(read_output, "a1", "stdout", None, 100)
    adopted = host.adopt(order_of("a2"))

    with pytest.raises(HostLost):
        job.result()
    with pytest.raises(HostLost):
        host.start(order_of("a1"))
    assert adopted is not None
    assert adopted.state().phase == "lost"


async def test_a_session_is_killed_once(leader: Leader, worker: PaperWorker) -> None:
    worker.join()
    handle = started(leader, "a1")
    await worker.orders()
    for _ in range(3):
        leader.hosts.holder_of(handle).kill(handle)
    assert await worker.orders() == [Stop(attempt_id="a1", grace=None)]


async def test_numbers_that_nothing_has_are_unknown(leader: Leader, worker: PaperWorker) -> None:
    worker.join()
    handle = started(leader, "a1")
    absurd = SessionState(phase="ended", exit_code=10**25, cause="exit", ended_at=1e300)
    summary = RunSummary(denials=10**30, tokens=10**30, outcome="success")

    worker.report(SessionReport(attempt_id="a1", state=absurd, summary=summary))
    handle.read(NOW)

    assert handle.state() == SessionState(phase="ended", cause="exit")
    assert handle.facts == RunSummary(outcome="success")


async def test_work_of_a_lost_host_fails_as_lost(leader: Leader, worker: PaperWorker) -> None:
    worker.join()
    job = leader.hosts.of("#box1").jobs.start(read_output, "a1", "stdout", None, 100)
    leader.pass_time(LEASE + LOSS_MARGIN_SECONDS + 1)
    leader.hosts.step()
    with pytest.raises(HostLost, match="box1 has not answered for 11 min"):
        job.result()


# -- removed hosts ------------------------------------------------------------------------------------------


async def test_a_removed_host_is_forgotten_once_nothing_can_run_there(leader: Leader, worker: PaperWorker) -> None:
    box2 = HostSettings(name="box2", host_lease=LEASE)
    leader.settings = msgspec.structs.replace(leader.settings, hosts={})
    save_hosts(leader.store, {"box1": HostSettings(name="box1", host_lease=LEASE), "box2": box2})
    leader.restart("two")
    worker.join()
    handle = started(leader, "a1")
    leader.hosts.problems["box2"] = "host box2: it does not answer"
    assert {state.name: state.problem for state in leader.hosts.states()} == {
        "box1": None,
        "box2": "host box2: it does not answer",
    }

    save_hosts(leader.store, {})
    leader.hosts.read_settings()
    leader.pass_time(5)
    leader.hosts.step()
    assert [state.name for state in leader.hosts.states()] == ["box1"]  # its session may still run
    assert handle.state().phase == "running"

    leader.pass_time(LEASE + LOSS_MARGIN_SECONDS + 1)
    leader.hosts.step()
    leader.pass_time(5)
    leader.hosts.step()
    assert handle.state().phase == "lost"
    assert leader.hosts.states() == []
    leader.restart("three")
    assert leader.hosts.states() == []


# -- a lead that moves from machine to machine -------------------------------------------------------------


def test_the_machine_of_the_leader_is_local_and_no_other_host(leader: Leader) -> None:
    leader.restart("two", own="box1")

    assert leader.hosts.of("max-1#box1") is leader.hosts.local
    assert leader.hosts.states() == []
    with pytest.raises(UnknownName):
        PaperWorker(leader).join()


def test_sessions_of_a_leader_on_another_machine_have_no_end_until_somebody_serves_it(leader: Leader) -> None:
    leader.restart("two", own="box1")
    leader.restart("three", own="box2")
    handle = leader.hosts.of("max-1#box1").adopt(order_of("a-1"))

    leader.pass_time(30 * 86400.0)
    leader.hosts.step()
    assert handle is not None
    assert (handle.state().phase, leader.presence) == ("running", "silent")
    worker = PaperWorker(leader, "home of box1")
    worker.join("a-1")
    worker.report()  # from now on it goes by its lease
    leader.pass_time(LEASE + LOSS_MARGIN_SECONDS + 1.0)
    leader.hosts.step()

    assert handle.state().phase == "lost"


def test_logins_without_a_host_get_the_name_of_the_machine_before(leader: Leader) -> None:
    campaign = Campaign(name="docs", accounts=("max-1",))
    leader.store.add_campaign(campaign, [UnitSpec(id=name, prompt="p") for name in "abc"], update=False, now=NOW)
    for login in ("max-1", "max-1#box2", "max-1#box3"):
        leader.store.claim_units("docs", login, 1, attempt_ids=[f"one-{login}"], lease_until=NOW + 60.0, now=NOW)

    for owner, own, logins in (
        ("two", "box1", ["max-1", "max-1#box2", "max-1#box3"]),
        ("three", "box2", ["max-1#box1", "max-1", "max-1#box3"]),
        ("four", "box2", ["max-1#box1", "max-1", "max-1#box3"]),
        ("five", "box1", ["max-1", "max-1#box2", "max-1#box3"]),
    ):
        leader.restart(owner, own=own)
        leader.hosts.move_lead([campaign], ["max-1"])
        assert [unit.account for unit in leader.store.running_units()] == logins
