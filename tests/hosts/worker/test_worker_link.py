"""A worker whose link fails, or whose leader changes: nothing is lost, nothing is done or reported twice."""

import asyncio

import msgspec
import pytest
from tests.hosts.worker.conftest import WorkerHost

from paceline.core.signals import QuotaClosed
from paceline.hosts.messages import Call, CallReport, SessionReport
from paceline.simulation import agent_transcripts as said


async def test_what_an_agent_says_reaches_the_leader_as_signals_and_facts(host: WorkerHost) -> None:
    resets_at = host.clock.now() + 3600
    transcript = said.init() + said.answer() + said.rejected(resets_at)
    async with host.worker():
        await host.leader.joined()
        await host.leader.give(host.start_agent("a1", transcript.encode(), "exit 1"))
        report = await host.leader.end_of("a1")

    signals = [each for one in host.leader.of_session("a1") for each in one.signals]
    closed = [each for each in signals if isinstance(each, QuotaClosed)]
    assert [each.resets_at for each in closed] == [float(int(resets_at))]
    assert (report.summary.outcome, report.summary.session_id, report.summary.tokens) == ("quota_window", "s1", 20)
    assert all(not each.is_catching_up for each in host.leader.of_session("a1"))


@pytest.mark.parametrize("lost", [1, 2, 3, 5])
async def test_answers_that_are_lost_cost_no_session_and_double_none(host: WorkerHost, lost: int) -> None:
    """The leader gets every request, and the worker repeats those whose answers it did not get."""
    async with host.worker():
        await host.leader.joined()
        host.link.lose_answers(lost)
        for name in ("a1", "a2", "a3"):
            await host.leader.give(host.start(name, f"echo {name} >> runs; exit 5"))
        ends = [await host.leader.end_of(name) for name in ("a1", "a2", "a3")]

    assert sorted(host.lines("runs")) == ["a1", "a2", "a3"]
    assert [end.state.exit_code for end in ends if end.state] == [5, 5, 5]
    assert [len(host.leader.ends_of(name)) for name in ("a1", "a2", "a3")] == [1, 1, 1]
    assert len(host.leader.joins) == 1


async def test_a_short_cut_of_the_link_loses_and_doubles_nothing(host: WorkerHost) -> None:
    gate = host.gate("gate")
    transcript = said.init() + said.answer()
    async with host.worker():
        await host.leader.joined()
        await host.leader.give(host.start_agent("a1", transcript.encode(), "read line < gate", "cat more"))
        await host.leader.until(lambda: any(each.summary.has_answered for each in host.leader.of_session("a1")))
        host.link.cut()
        (host.work / "more").write_text(said.rejected(host.clock.now() + 60) + said.done())
        await asyncio.to_thread(gate.write_line)
        host.link.restore()
        report = await host.leader.end_of("a1")

    signals = [type(each).__name__ for one in host.leader.of_session("a1") for each in one.signals]
    assert signals.count("QuotaClosed") == 1
    assert report.summary.answer == "Done."
    assert len(host.leader.joins) == 1


async def test_a_new_leader_gets_a_session_from_its_beginning_in_one_report(host: WorkerHost) -> None:
    gate = host.gate("gate")
    transcript = said.init() + said.answer() + said.warned(0.5, host.clock.now() + 60)
    async with host.worker():
        await host.leader.joined()
        start = host.start_agent("a1", transcript.encode(), "read line < gate", "cat more", "echo ran >> runs")
        await host.leader.give(start)
        await host.leader.until(lambda: any(each.summary.has_answered for each in host.leader.of_session("a1")))
        await host.leader.restart()
        await host.leader.joined(2)
        seen = len(host.leader.reports)
        await host.leader.give(host.follow("a1", provider="anthropic"))
        await host.leader.until(lambda: len(host.leader.of_session("a1")) > 1 and len(host.leader.reports) > seen)
        (host.work / "more").write_text(said.done())
        await asyncio.to_thread(gate.write_line)
        await host.leader.end_of("a1")

    again = [each for each in host.leader.reports[seen:] if isinstance(each, SessionReport)]
    assert host.leader.joins[1].attempts == ("a1",)
    assert [each.is_catching_up for each in again] == [True] + [False] * (len(again) - 1)
    assert again[0].summary.has_answered
    assert [type(each).__name__ for each in again[0].signals] == ["Budget"]
    assert again[-1].summary.answer == "Done."
    assert host.lines("runs") == ["ran"]


async def test_a_session_that_ended_between_two_leaders_is_caught_up_on_and_then_ended(host: WorkerHost) -> None:
    async with host.worker():
        await host.leader.joined()
        await host.leader.give(host.start_agent("a1", (said.init() + said.answer() + said.done()).encode()))
        await host.leader.end_of("a1")
        await host.leader.restart()
        await host.leader.joined(2)
        seen = len(host.leader.reports)
        await host.leader.give(host.follow("a1", provider="anthropic"))
        await host.leader.until(lambda: len(host.leader.ends_of("a1")) == 2)

    again = [each for each in host.leader.reports[seen:] if isinstance(each, SessionReport)]
    assert [(each.is_catching_up, each.state and each.state.phase) for each in again] == [
        (True, "running"),
        (False, "ended"),
    ]
    assert again[1].summary.outcome == "success"


async def test_orders_of_an_earlier_leader_are_dropped(host: WorkerHost) -> None:
    async with host.worker():
        await host.leader.joined()
        await host.leader.obeyed()
        host.link.cut()
        await host.leader.give(host.start("a1", "echo ran >> runs"))
        await host.leader.restart()
        host.link.restore()
        await host.leader.joined(2)
        await host.leader.give(host.start("a2", "true"))
        await host.leader.end_of("a2")

    assert host.lines("runs") == []


async def test_a_worker_that_leaves_says_so_and_the_next_one_finds_its_sessions(host: WorkerHost) -> None:
    gate = host.gate("gate")
    async with host.worker():
        await host.leader.joined()
        await host.leader.give(host.start("a1", "echo ran >> runs; read line < gate; exit 6"))
        await host.leader.until(lambda: host.leader.of_session("a1"))
    has_left = host.leader.has_left
    async with host.worker():
        await host.leader.joined(2)
        await host.leader.give(host.follow("a1"))
        await host.leader.obeyed()
        await asyncio.to_thread(gate.write_line)
        end = await host.leader.end_of("a1")

    assert has_left
    assert [join.worker for join in host.leader.joins] == ["w1", "w1"]
    assert host.leader.joins[1].attempts == ("a1",)
    assert end.state is not None
    assert end.state.exit_code == 6
    assert host.lines("runs") == ["ran"]


async def test_a_call_is_done_once_and_its_result_is_reported_again_on_request(host: WorkerHost) -> None:
    done: list[str] = []

    async def run(call: Call) -> CallReport:
        done.append(call.call_id)
        return CallReport(call_id=call.call_id, result=msgspec.Raw(b"[1]"))

    call = Call(call_id="c1", job="anything", arguments=msgspec.Raw(b"{}"))
    async with host.worker(run):
        await host.leader.joined()
        await host.leader.give(call)
        await host.leader.until(lambda: len(host.leader.results()) == 1)
        await host.leader.restart()
        await host.leader.joined(2)
        await host.leader.give(call)
        await host.leader.until(lambda: len(host.leader.results()) == 2)

    assert done == ["c1"]
    assert [bytes(each.result) for each in host.leader.results()] == [b"[1]", b"[1]"]


async def test_the_result_of_a_call_outlives_the_leader_that_asked_for_it(host: WorkerHost) -> None:
    go = asyncio.Event()

    async def run(call: Call) -> CallReport:
        await go.wait()
        return CallReport(call_id=call.call_id)

    async with host.worker(run):
        await host.leader.joined()
        await host.leader.give(Call(call_id="c1", job="anything", arguments=msgspec.Raw(b"{}")))
        await host.leader.obeyed()
        await host.leader.restart()
        await host.leader.joined(2)
        go.set()
        await host.leader.until(lambda: host.leader.results())

    assert [each.call_id for each in host.leader.results()] == ["c1"]
