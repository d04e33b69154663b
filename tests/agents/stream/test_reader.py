"""The reader of a whole run: what it returns while output arrives, and through which channel."""

import pytest
from tests.agents.stream.agent_output import (
    INIT,
    QUOTA,
    REJECTED,
    RETRY,
    STARTED_AT,
    AgentRun,
    line,
    lines,
)

from paceline.core.signals import (
    Overloaded,
    QuotaClosed,
    RateLimited,
    Signal,
)
from paceline.core.values.session_output import Channel
from paceline.errors import InvalidInput


def test_an_unknown_channel_is_refused() -> None:
    with pytest.raises(InvalidInput, match="unknown channel 'stdin': it is stdout, stderr or screen"):
        AgentRun().prints(b"", "stdin")  # type: ignore[arg-type]


def test_a_retry_is_reported_at_the_first_one_and_the_rest_are_counted() -> None:
    session = AgentRun()
    session.prints(line(INIT))

    first = session.prints(line(RETRY))
    later = session.prints(lines(RETRY, RETRY))

    assert first == [RateLimited(retry_after=3.0, confidence=0.6, source="backoff")]
    assert later == []
    assert session.reader.retries == 3


def test_an_event_is_reported_as_soon_as_its_line_is_whole() -> None:
    session = AgentRun()
    data = line(INIT) + line(REJECTED)

    before = session.prints(data[:-1])
    at_the_line_feed = session.prints(data[-1:])

    assert (before, at_the_line_feed) == ([], [QUOTA])


@pytest.mark.parametrize("channel", ["stdout", "stderr", "screen"])
def test_pr_4290_is_not_a_429(channel: Channel) -> None:
    session = AgentRun()

    reported = session.prints(b"Opened PR #4290 (429 lines changed)\n", channel)

    assert reported + session.reader.close(exit_code=1, seen_at=STARTED_AT) == []
    assert session.reader.outcome == "failed"


BOX = (
    "\x1b[2J\x1b[H\x1b[31m╭────────────────────────────────────╮\x1b[0m\r\n"
    "│ Usage limit reached for gemini-2.5-pro.│\r\n│ Access resets at 2:00 AM.          │\r\n"
    "│ /stats model for usage details     │\r\n╰────────────────────────────────────╯\r\n"
).encode()


def test_a_box_on_the_screen() -> None:
    session = AgentRun("gemini-cli")

    reported = session.prints(BOX, "screen")

    assert [type(signal) for signal in reported] == [QuotaClosed]
    assert session.ends(143) == "quota_window"


def test_a_countdown_that_redraws_itself_is_reported_once() -> None:
    session = AgentRun()
    reported: list[Signal] = []
    for seconds in range(9, 0, -1):
        drawn = f"\x1b[2J\x1b[H✻ 529 Overloaded · Retrying in {seconds}s · attempt 6/10\r\n\r\n❯ \r\n"
        reported += session.prints(drawn.encode(), "screen")

    assert [type(signal) for signal in reported] == [Overloaded]


def test_what_the_agent_writes_on_the_screen_is_prose() -> None:
    session = AgentRun()
    text = "⏺ The API docs say a rate limit of 30 concurrent requests applies,\r\n  so it should back off on 429s.\r\n"

    assert session.prints(text.encode(), "screen") == []
