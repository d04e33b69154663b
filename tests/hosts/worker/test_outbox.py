"""Reports on their way: whatever is lost and repeated, the leader gets each once and in order."""

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.signals import AnySignal, RateLimited
from paceline.executors.interface import SessionState
from paceline.hosts.messages import CallReport, SessionReport
from paceline.hosts.worker.sessions import Outbox

RUNNING = SessionState(phase="running")


def news(attempt: str, *retries: float, is_catching_up: bool = False) -> SessionReport:
    signals: tuple[AnySignal, ...] = tuple(RateLimited(retry_after=each) for each in retries)
    return SessionReport(attempt_id=attempt, state=RUNNING, signals=signals, is_catching_up=is_catching_up)


def test_unsent_news_of_one_session_go_together_with_all_signals() -> None:
    outbox = Outbox()
    for report in (news("a1", 1.0), news("a2"), news("a1", 2.0)):
        outbox.add(report)

    assert outbox.batch() == ((1, news("a2")), (2, news("a1", 1.0, 2.0)))


def test_what_was_sent_keeps_its_number_and_its_content() -> None:
    outbox = Outbox()
    outbox.add(news("a1", 1.0))
    first = outbox.batch()
    outbox.add(news("a1", 2.0))

    assert outbox.batch() == first == ((1, news("a1", 1.0)),)
    outbox.confirm(1)
    assert outbox.batch() == ((2, news("a1", 2.0)),)


def test_the_report_about_earlier_output_stays_alone() -> None:
    outbox = Outbox()
    outbox.add(news("a1", 1.0, is_catching_up=True))
    outbox.add(news("a1", 2.0))

    assert [report for _, report in outbox.batch()] == [news("a1", 1.0, is_catching_up=True), news("a1", 2.0)]


def test_a_new_joining_gets_results_of_calls_and_no_old_news_of_sessions() -> None:
    outbox = Outbox()
    outbox.add(news("a1"))
    outbox.add(CallReport(call_id="c1"))
    outbox.batch()
    outbox.add(CallReport(call_id="c2"))
    outbox.start_over()

    assert outbox.batch() == ((1, CallReport(call_id="c1")), (2, CallReport(call_id="c2")))


def test_a_request_does_not_grow_without_a_bound() -> None:
    outbox = Outbox()
    for number in range(10):
        outbox.add(CallReport(call_id=f"c{number}", text="x" * 100_000))

    assert len(outbox.batch()) == 3


STEP = st.one_of(
    st.tuples(st.just("news"), st.integers(1, 3)),
    st.tuples(st.just("call"), st.just(0)),
    st.sampled_from([("send", 0), ("lose request", 0), ("lose answer", 0)]),
)


@given(st.lists(STEP, max_size=60))
def test_whatever_is_lost_each_signal_and_each_result_arrives_once_and_in_order(steps: list[tuple[str, int]]) -> None:
    outbox, made, taken, through = Outbox(), 0, [], 0
    for step, session in [*steps, *[("send", 0)] * (len(steps) + 1)]:
        if step == "news":
            made += 1
            outbox.add(news(f"a{session}", float(made)))
        elif step == "call":
            made += 1
            outbox.add(CallReport(call_id=str(made)))
        else:
            batch = outbox.batch()
            if step == "lose request":
                continue
            for number, report in batch:
                if number > through:
                    assert number == through + 1
                    through = number
                    taken.append(report)
            if step == "send":
                outbox.confirm(through)

    results = [int(each.call_id) for each in taken if isinstance(each, CallReport)]
    signals = {
        name: [
            each.retry_after
            for one in taken
            if isinstance(one, SessionReport) and one.attempt_id == name
            for each in one.signals
            if isinstance(each, RateLimited)
        ]
        for name in ("a1", "a2", "a3")
    }
    everything = sorted([*results, *(int(each or 0) for found in signals.values() for each in found)])
    assert everything == list(range(1, made + 1))
    assert results == sorted(results)
    assert all(found == sorted(found, key=lambda each: each or 0) for found in signals.values())
    assert outbox.is_empty


def test_half_a_character_of_an_agent_is_replaced() -> None:
    outbox = Outbox()
    outbox.add(CallReport(call_id="c1", error="WorkspaceError", text="cannot read \udcff.txt"))
    outbox.add(SessionReport(attempt_id="a1", state=None, tail="done \ud83d"))
    assert [report for _, report in outbox.batch()] == [
        CallReport(call_id="c1", error="WorkspaceError", text="cannot read ?.txt"),
        SessionReport(attempt_id="a1", state=None, tail="done ?"),
    ]
