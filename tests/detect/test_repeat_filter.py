"""Which signals are news: a limit that a CLI meets again and again is reported once."""

from tests.detect.agent_output import (
    ANSWER,
    DONE,
    INIT,
    QUOTA,
    QWEN_NOTICE,
    QWEN_RETRY,
    REJECTED,
    RESET,
    RETRY,
    AgentRun,
    kinds,
    line,
    lines,
)

from paceline.core.signals import (
    Budget,
    QuotaClosed,
    RateLimited,
)


def test_the_next_incident_after_an_answer_is_reported_again() -> None:
    session = AgentRun()
    session.prints(lines(INIT, RETRY))

    again = session.prints(lines(ANSWER, RETRY))

    assert kinds(again) == ["RateLimited"]
    assert session.reader.retries == 1


def test_a_limit_that_outlasts_what_was_reported_is_reported_again() -> None:
    session = AgentRun()
    session.prints(lines(INIT, RETRY))

    session.now += 61
    again = session.prints(line(RETRY))

    assert kinds(again) == ["RateLimited"]


def test_a_wait_over_a_minute_is_reported_even_after_a_short_one() -> None:
    session = AgentRun()
    session.prints(lines(INIT, RETRY))

    longer = session.prints(line(RETRY | {"retry_delay_ms": 90_000}))

    assert longer == [RateLimited(retry_after=90.0, confidence=0.6, source="backoff")]


def test_the_429_that_follows_a_spent_window_is_the_same_limit() -> None:
    session = AgentRun()
    result = DONE | {"is_error": True, "api_error_status": 429, "result": "API Error: Request rejected (429)"}

    reported = session.prints(lines(INIT, REJECTED, result))

    assert reported == [QUOTA]
    assert session.ends(1) == "quota_window"


def test_another_window_is_another_limit() -> None:
    session = AgentRun()
    weekly = {"status": "rejected", "resetsAt": RESET + 400_000, "rateLimitType": "seven_day"}

    reported = session.prints(lines(INIT, REJECTED, REJECTED | {"rate_limit_info": weekly}))

    assert [signal.window for signal in reported if isinstance(signal, QuotaClosed)] == ["5h", "weekly"]


def test_a_meter_reading_is_reported_when_it_has_moved() -> None:
    session = AgentRun()
    info = {"status": "allowed_warning", "resetsAt": RESET, "rateLimitType": "five_hour", "utilization": 0.9}
    moved = info | {"utilization": 0.93}

    reported = session.prints(lines(INIT, *(REJECTED | {"rate_limit_info": i} for i in (info, info, moved))))

    assert [signal.used_ratio for signal in reported if isinstance(signal, Budget)] == [0.9, 0.93]


def test_a_guess_is_not_reported_where_the_cause_is_known() -> None:
    session = AgentRun("qwen-code")
    session.prints(QWEN_NOTICE, "stderr")

    assert session.prints(lines(INIT, QWEN_RETRY)) == []
    assert session.ends(143) == "overloaded"
