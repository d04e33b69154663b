"""Qwen Code: what its copy of the stream format adds."""

from tests.agents.stream.agent_output import (
    INIT,
    QWEN_NOTICE,
    QWEN_RETRY,
    AgentRun,
    kinds,
    lines,
)
from tests.detect.readings import event_signals

from paceline.core.signals import (
    Overloaded,
    RateLimited,
)


def test_qwen_calls_an_error_none() -> None:
    signals = event_signals(
        type="result", is_error=False, result="[API Error: 503 The server is overloaded or not ready yet.]"
    )
    assert isinstance(signals[0], Overloaded)


def test_qwen_announces_a_retry_without_its_cause_and_names_it_on_stderr() -> None:
    session = AgentRun("qwen-code")

    guessed = session.prints(lines(INIT, QWEN_RETRY))
    named = session.prints(QWEN_NOTICE, "stderr")

    assert guessed == [RateLimited(retry_after=60.0, confidence=0.4, source="backoff")]
    assert kinds(named) == ["Overloaded"]
    assert session.reader.retries == 1
    assert session.ends(143) == "overloaded"
