"""A worker with real processes: orders are carried out once, and the leader hears of everything that matters."""

import os

import pytest
from tests.worker.conftest import WorkerHost

from paceline.hosts.messages import Archive, Kill, SessionReport, Start, Stop, Sweep


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
        await host.leader.give(Start(session=host.order("a1", *argv)))
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
        await host.leader.give(Stop(attempt_id="a1", grace=5.0), Kill(attempt_id="a2"))
        stopped, killed = await host.leader.end_of("a1"), await host.leader.end_of("a2")
        await host.leader.give(Archive(attempt_id="a1"), Archive(attempt_id="a2", keep_output=False))
        await host.leader.obeyed()
        await host.leader.restart()
        await host.leader.joined(2)

    assert stopped.state is not None
    assert killed.state is not None
    assert (stopped.state.cause, killed.state.phase) == ("stopped", "lost")
    assert host.leader.joins[1].attempts == ()
    assert sorted(os.listdir(host.home / "spool" / ".settled")) == ["a1"]


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
