"""What is remembered of a run: tokens, turns, payer and whether the model has answered."""

from tests.detect.agent_output import (
    ANSWER,
    DONE,
    INIT,
    REJECTED,
    RESET,
    STARTED_AT,
    AgentRun,
    line,
    lines,
)

from paceline.detect import StreamReader


def test_tokens_grow_with_the_messages_and_end_as_the_cli_counts_them() -> None:
    session = AgentRun()
    seen: list[int | None] = [session.reader.tokens]
    for event in (INIT, ANSWER, ANSWER, DONE | {"modelUsage": {"opus": {"inputTokens": 100, "outputTokens": 11}}}):
        session.prints(line(event))
        seen.append(session.reader.tokens)

    assert seen == [None, None, 50, 50, 111]


def test_turns_are_counted_when_they_are_completed() -> None:
    session = AgentRun()
    session.prints(lines(INIT, ANSWER, DONE))
    session.prints(lines(ANSWER, DONE, DONE | {"is_error": True}))

    assert session.reader.turns == 2


def test_overage_once_seen_stays() -> None:
    session = AgentRun()
    allowed = {"status": "allowed", "resetsAt": RESET, "rateLimitType": "five_hour"}
    for overage in (False, True, False):
        session.prints(lines(INIT, REJECTED | {"rate_limit_info": allowed | {"isUsingOverage": overage}}))

    assert session.reader.auth_mode == "overage"


def test_a_conversation_has_begun_once_the_model_acts_even_if_the_turn_never_ends() -> None:
    reader = StreamReader("codex")
    started = {"type": "thread.started", "thread_id": "t1"}
    note = {"type": "item.completed", "item": {"id": "item_0", "type": "error", "message": "Model metadata not found"}}
    called = {"type": "item.started", "item": {"id": "item_1", "type": "command_execution", "command": "ls"}}

    reader.feed(line(started) + line(note), channel="stdout", seen_at=STARTED_AT)
    assert not reader.has_answered
    reader.feed(line(called), channel="stdout", seen_at=STARTED_AT)

    assert (reader.has_answered, reader.turns, reader.tokens) == (True, 0, None)
