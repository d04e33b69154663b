"""Codex: failed turns, header windows and the transcript on stderr."""

from tests.agents.stream.agent_output import (
    STARTED_AT,
    THREAD,
    AgentRun,
    kinds,
    lines,
)
from tests.detect.each_row import each_row
from tests.detect.readings import NOW, answer_signals, event_signals

from paceline.core.signals import (
    QuotaClosed,
)


def test_a_failed_turn_states_when_the_window_reopens() -> None:
    message = "You’ve hit your usage limit. Upgrade to Pro (https://x.y/pro) or try again at 4:02 PM."
    (quota,) = event_signals(type="turn.failed", error={"message": message})
    assert isinstance(quota, QuotaClosed)
    assert quota.resets_at == NOW + 6520


def test_the_codex_window_is_named_by_its_minutes_and_not_by_its_place() -> None:
    headers = {
        "x-codex-primary-used-percent": "100",
        "x-codex-primary-window-minutes": "10080",
        "x-codex-primary-reset-at": str(int(NOW) + 9000),
        "x-codex-secondary-used-percent": "12",
    }
    quota = answer_signals(429, headers)[0]
    assert isinstance(quota, QuotaClosed)
    assert (quota.window, quota.resets_at) == ("weekly", NOW + 9000)


def test_codex_transcript_on_stderr_is_not_read_as_errors() -> None:
    session = AgentRun("codex")
    transcript = b"OpenAI Codex v0.166.0\n--------\nsession id: 01a1\n--------\nuser\nfix it\ncodex\n"

    reported = session.prints(transcript + b"You've hit your usage limit. Try again at 4:02 AM.\n", "stderr")
    reported += session.prints(b"tokens used\n1,020\n", "stderr")

    assert reported == []
    assert (session.reader.session_id, session.reader.tokens) == ("01a1", 1020)


def test_the_last_error_line_of_a_failed_codex_transcript_counts() -> None:
    session = AgentRun("codex")
    transcript = b"OpenAI Codex v0.166.0\nsession id: 01a1\nuser\nfix it\ncodex\nOn it.\n"
    session.prints(transcript + "ERROR: You’ve hit your usage limit. Try again at 4:02 AM.\n".encode(), "stderr")

    reported = session.reader.close(exit_code=1, seen_at=STARTED_AT)

    assert kinds(reported) == ["QuotaClosed"]
    assert session.reader.outcome == "quota_window"


@each_row(("last", "outcome"), [(b"turn interrupted", "interrupted"), (b"turn interrupted\ncodex\nsorry", "failed")])
def test_a_codex_transcript_that_ends_with_an_interruption_was_stopped(last: bytes, outcome: str) -> None:
    session = AgentRun("codex")
    session.prints(b"OpenAI Codex v0.166.0\nsession id: 01a1\nuser\nfix it\n" + last + b"\n", "stderr")

    session.reader.close(exit_code=1, seen_at=STARTED_AT)

    assert session.reader.outcome == outcome


def test_a_codex_transcript_reports_a_retry_at_once() -> None:
    session = AgentRun("codex")
    session.prints(b"OpenAI Codex v0.166.0\nsession id: 01a1\nuser\nfix it\n", "stderr")

    reported = session.prints(
        b"ERROR: Reconnecting... 1/5 (exceeded retry limit, last status: 429 Too Many Requests)\n", "stderr"
    )

    assert kinds(reported) == ["RateLimited"]
    assert session.reader.retries == 1


def test_a_reset_that_is_cut_down_to_its_minute_is_the_end_of_that_minute() -> None:
    run = AgentRun("codex")  # at 01:20 UTC
    message = "You've hit your usage limit. Try again at 4:02 AM."
    (quota,) = run.prints(lines(THREAD, {"type": "error", "message": message}))

    assert isinstance(quota, QuotaClosed)
    assert quota.resets_at == STARTED_AT + 2 * 3600 + 42 * 60 + 60
