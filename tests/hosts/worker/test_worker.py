"""A worker with real processes: orders are carried out once, and the leader hears of everything that matters."""

import os

import msgspec
import pytest
from tests.hosts.worker.conftest import WorkerHost, agent_profile

from paceline.agents import Task
from paceline.agents.account import Account, GatewayAddress
from paceline.executors.interface import OutputLimits
from paceline.hosts.messages import Archive, SessionOrder, SessionReport, Stop, Sweep
from paceline.simulation import agent_transcripts as said


async def test_a_session_is_started_read_and_reported_to_its_end(host: WorkerHost) -> None:
    async with host.worker():
        await host.leader.joined()
        await host.leader.give(host.start("a1", "echo hello; exit 3"))
        report = await host.leader.end_of("a1")

    assert report.state is not None
    assert (report.state.phase, report.state.exit_code, report.state.cause) == ("ended", 3, "exit")
    assert (report.summary.outcome, report.summary.failure_text) == ("failed", "hello")


async def test_the_leader_sees_its_own_clock(host: WorkerHost) -> None:
    host.leader._ahead = 5000.0
    before = host.clock.now()
    async with host.worker():
        await host.leader.joined()
        await host.leader.give(host.start("a1", "true"))
        report = await host.leader.end_of("a1")

    assert report.state is not None
    assert report.state.started_at is not None
    assert before + 4999 < report.state.started_at < host.clock.now() + 5001
    assert report.state.ended_at is not None
    assert before + 4999 < report.state.ended_at < host.clock.now() + 5001


async def test_the_end_of_the_output_of_a_command_is_reported(host: WorkerHost) -> None:
    async with host.worker():
        await host.leader.joined()
        await host.leader.give(host.start("a1", "echo first; echo last >&2; exit 1", is_command=True))
        report = await host.leader.end_of("a1")

    assert report.tail == "first\nlast"
    assert report.state is not None
    assert report.state.exit_code == 1


@pytest.mark.parametrize(
    ("argv", "error", "words"), [(("",), "InvalidInput", "empty"), ((), "InvalidInput", "command")]
)
async def test_a_session_that_cannot_be_started_is_reported_with_its_error(
    host: WorkerHost, argv: tuple[str, ...], error: str, words: str
) -> None:
    async with host.worker():
        await host.leader.joined()
        await host.leader.give(host.order("a1", *argv))
        report = await host.leader.end_of("a1")

    assert report.state is not None
    assert (report.state.phase, report.error) == ("not_started", error)
    assert words in report.state.message


async def test_a_session_that_never_began_is_reported_so_and_never_begins(host: WorkerHost) -> None:
    async with host.worker():
        await host.leader.joined()
        await host.leader.give(host.follow("a1"), host.start("a1", "echo ran >> runs"))
        await host.leader.until(lambda: len(host.leader.ends_of("a1")) == 2)

    assert host.leader.of_session("a1") == [SessionReport(attempt_id="a1", state=None)] * 2
    assert host.lines("runs") == []


async def test_a_session_that_is_ordered_twice_is_started_once(host: WorkerHost) -> None:
    async with host.worker():
        await host.leader.joined()
        await host.leader.give(host.start("a1", "echo ran >> runs; exit 4"))
        await host.leader.end_of("a1")
        await host.leader.give(host.start("a1", "echo ran >> runs; exit 4"))
        await host.leader.until(lambda: len(host.leader.ends_of("a1")) == 2)

    assert host.lines("runs") == ["ran"]
    assert [each.state.exit_code for each in host.leader.ends_of("a1") if each.state] == [4, 4]


async def test_a_session_is_stopped_killed_and_put_away_on_order(host: WorkerHost) -> None:
    async with host.worker():
        await host.leader.joined()
        await host.leader.give(host.start("a1", "sleep 1000"), host.start("a2", "sleep 1000"))
        await host.leader.until(lambda: host.leader.of_session("a1") and host.leader.of_session("a2"))
        await host.leader.give(Stop(attempt_id="a1", grace=5.0), Stop(attempt_id="a2", grace=None))
        stopped, killed = await host.leader.end_of("a1"), await host.leader.end_of("a2")
        await host.leader.give(Archive(attempt_id="a1"), Archive(attempt_id="a2"))
        await host.leader.obeyed()
        await host.leader.restart()
        await host.leader.joined(2)

    assert stopped.state is not None
    assert killed.state is not None
    assert (stopped.state.cause, killed.state.phase) == ("stopped", "lost")
    assert host.leader.joins[1].attempts == ()
    assert sorted(os.listdir(host.home / "spool" / ".settled")) == ["a1", "a2"]


async def test_a_sweep_ends_what_no_unit_owns_and_leaves_the_rest_alone(host: WorkerHost) -> None:
    host.gate("gate")
    async with host.worker():
        await host.leader.joined()
        await host.leader.give(host.start("a1", "read line < gate"), host.start("a2", "sleep 1000"))
        await host.leader.until(lambda: host.leader.of_session("a1") and host.leader.of_session("a2"))
        await host.leader.give(Sweep(keep=("a1",)))
        await host.leader.obeyed()
        while (await _attempts_at_next_joining(host)) != ("a1",):
            pass

    assert len(host.processes()) == 2  # a supervisor and its agent


async def _attempts_at_next_joining(host: WorkerHost) -> tuple[str, ...]:
    count = len(host.leader.joins)
    await host.leader.restart()
    await host.leader.joined(count + 1)
    return host.leader.joins[-1].attempts


async def test_a_session_reaches_the_gateway_the_way_its_worker_reaches_the_leader(host: WorkerHost) -> None:
    account = Account(name="key-1", provider="anthropic", via_gateway=True)
    task = Task(unit_id="night/u0", attempt_id="a1", prompt="x", cwd=str(host.work))
    profile = agent_profile("sh", "-c", "env > variables")
    gateway = GatewayAddress("", key="k3y")
    async with host.worker():
        await host.leader.joined()
        await host.leader.give(SessionOrder(profile=profile, task=task, account=account, gateway=gateway))
        await host.leader.end_of("a1")

    variables = host.lines("variables")
    assert "ANTHROPIC_BASE_URL=http://here:1/gateway/key-1/~a1" in variables
    assert any(each.endswith("=k3y") for each in variables)


async def test_the_login_of_an_account_is_the_one_in_the_home_folder_of_the_host(host: WorkerHost) -> None:
    account = Account(
        name="max-1", provider="anthropic", kind="subscription", env={"CLAUDE_CONFIG_DIR": "~/.claude-max"}
    )
    task = Task(unit_id="night/u0", attempt_id="a1", prompt="x", cwd=str(host.work))
    profile = agent_profile("sh", "-c", "env > variables")
    async with host.worker(environ={"HOME": "/home/here", "ANTHROPIC_API_KEY": "never"}):
        await host.leader.joined()
        await host.leader.give(SessionOrder(profile=profile, task=task, account=account))
        await host.leader.end_of("a1")

    variables = host.lines("variables")
    assert "CLAUDE_CONFIG_DIR=/home/here/.claude-max" in variables
    assert not any("never" in each for each in variables)


async def test_a_session_that_would_bill_a_key_is_not_started(host: WorkerHost) -> None:
    account = Account(name="max-1", provider="anthropic", kind="subscription", env={"ANTHROPIC_API_KEY": "x"})
    task = Task(unit_id="night/u0", attempt_id="a1", prompt="x", cwd=str(host.work))
    profile = agent_profile("sh", "-c", "echo ran >> runs")
    async with host.worker():
        await host.leader.joined()
        await host.leader.give(SessionOrder(profile=profile, task=task, account=account))
        report = await host.leader.end_of("a1")

    assert report.state is not None
    assert (report.state.phase, report.error) == ("not_started", "WouldBillKey")
    assert host.lines("runs") == []


async def test_a_long_output_is_read_without_waiting_between_its_pieces(host: WorkerHost) -> None:
    lines = b'{"type": "noise", "text": "%s"}\n' % (b"x" * 50_000) * 100  # five megabytes, in twenty turns
    async with host.worker():
        await host.leader.joined()
        await host.leader.give(host.start_agent("a1", said.init().encode() + lines + said.done().encode()))
        begun = host.clock.now()
        report = await host.leader.end_of("a1")

    assert report.summary.outcome == "success"
    assert host.clock.now() - begun < 15.0


async def test_an_expected_file_is_looked_for_on_the_host(host: WorkerHost) -> None:
    host.leader._ahead = -5000.0  # it is written 5,000 s after its start, as the leader counts
    begun_at = host.clock.now() - 5000.0
    async with host.worker():
        await host.leader.joined()
        for name, script in (("a1", "echo x > out.md"), ("a2", "rm out.md")):
            order = host.order(name, "sh", "-c", script, output="out.md")
            await host.leader.give(msgspec.structs.replace(order, begun_at=begun_at))
            await host.leader.end_of(name)

    assert host.leader.ends_of("a1")[0].output_problem is None
    assert host.leader.ends_of("a2")[0].output_problem == "out.md was not written"


async def test_output_that_was_put_away_is_removed_in_time(host: WorkerHost) -> None:
    host.leader.output = OutputLimits(max_age=0.001)
    async with host.worker():
        await host.leader.joined()
        await host.leader.give(host.start("a1", "echo x"))
        await host.leader.end_of("a1")
        await host.leader.give(Archive(attempt_id="a1"))
        await host.leader.obeyed()
        while os.listdir(host.home / "spool" / ".settled"):
            await host.clock.sleep(0.05)


async def test_a_host_that_leaves_starts_nothing_new_and_says_so(host: WorkerHost) -> None:
    async with host.worker() as worker:
        await host.leader.joined()
        await host.leader.give(host.start("a1", "sleep 600"))
        await host.leader.until(lambda: bool(host.leader.of_session("a1")))
        worker.drain()
        await host.leader.until(lambda: host.leader.has_left)
        await host.leader.give(host.start("a2", "echo ran >> runs"), host.start("a1", "echo ran >> runs"))
        await host.leader.until(lambda: bool(host.leader.ends_of("a2")))
        await host.leader.give(Stop(attempt_id="a1", grace=None))
        ended = await host.leader.end_of("a1")

    assert host.leader.of_session("a2") == [SessionReport(attempt_id="a2", state=None)]
    assert ended.state is not None
    assert host.lines("runs") == []
