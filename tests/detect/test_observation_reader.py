"""Every sample message is read right: its kind, its reset, and nothing where there is nothing."""

from tests.detect.each_row import each_row
from tests.detect.held_out import family_reports, judge
from tests.detect.readings import NOW, answer_signals, read_event
from tests.detect.sample_files import MORE_MESSAGES
from tests.detect.scoring import (
    Sample,
    just_passed,
    kind_of,
    moments_to_see,
    right_times,
    samples,
    times_of,
)

from paceline.agents.known import LIMITS
from paceline.core.signals import Overloaded, QuotaClosed
from paceline.detect import explain
from paceline.detect.provider import pattern

ROWS = samples()
# Sample id -> why it is read differently. Empty: all of them are read right.
KNOWN_MISSES: dict[str, str] = {}

# Of the 200 further messages: what is read right today. Raise the bar with every improvement; never lower it.
LEAST_KINDS = 198
LEAST_RESETS = 200
MOST_FALSE_ALARMS = 0


@each_row("row", ROWS, ids=lambda row: f"{row.id}: {row.text}")
def test_a_real_message_is_read_right(row: Sample) -> None:
    if row.id in KNOWN_MISSES:
        return
    for seen_at, tz in moments_to_see(row):
        if just_passed(row, seen_at, tz):
            continue
        reading = explain(row.seen(seen_at, tz))
        assert kind_of(reading.signals) in row.kinds, reading
        right, times = right_times(row, seen_at, tz), times_of(reading.signals, seen_at)
        if right:
            assert any(abs(a - b) <= 1 for a in right for b in times), (reading, [a - seen_at for a in right])
        elif row.expected.kind == "none":
            assert not times or kind_of(reading.signals) != "none", reading


def test_every_miss_is_a_sample_that_exists() -> None:
    assert KNOWN_MISSES.keys() <= {row.id for row in ROWS}


def test_the_known_misses_stay_within_the_bar() -> None:
    assert len(KNOWN_MISSES) <= 0.03 * len(ROWS)


def test_no_rule_matches_a_whole_sample() -> None:
    for row in ROWS:
        text = " ".join(row.text.split())
        if len(text) < 40:
            continue
        for rule in LIMITS.rules:
            found = pattern(rule.loose).search(text)
            assert found is None or len(found[0]) < 0.97 * len(text), (rule.name, row.id)


def test_the_shared_rules_read_most_of_a_family_whose_own_rules_are_held_out() -> None:
    for family in family_reports(ROWS):
        if not family.name.startswith("shared"):
            assert family.right_held_out >= 0.75 * family.rows, family
            assert family.false_alarms_held_out <= 0.03 * family.rows + 1, family


def test_the_readings_of_further_messages_get_no_worse() -> None:
    rows = samples(MORE_MESSAGES)
    judged = [(row, *judge(row, LIMITS)) for row in rows]
    kinds = sum(kind for _, kind, _ in judged)
    resets = sum(reset for _, _, reset in judged)
    false_alarms = sum(row.expected.kind == "none" and not kind for row, kind, _ in judged)
    assert len(rows) == 200
    assert kinds >= LEAST_KINDS
    assert resets >= LEAST_RESETS
    assert false_alarms <= MOST_FALSE_ALARMS


def test_an_answer_of_200_that_mentions_limits_is_no_limit() -> None:
    body = '{"choices":[{"message":{"content":"Rate limit exceeded. Please try again in 20s."}}]}'
    assert answer_signals(200, text=body) == []


def test_a_banner_that_a_proxy_passed_on_as_an_answer_is_one() -> None:
    body = '{"content":[{"type":"text","text":"You\'ve hit your limit · resets 3pm (UTC)"}],"stop_reason":"end_turn"}'
    quota = answer_signals(200, text=body)[0]
    assert isinstance(quota, QuotaClosed)
    assert quota.resets_at == NOW + 2800


def test_an_error_that_a_proxy_passed_on_as_an_answer_is_one() -> None:
    said = "Error: request failed (429): Your quota will reset after 2h0m0s."
    quota = answer_signals(200, text=f'{{"choices":[{{"message":{{"content":"{said}"}}}}]}}')[0]
    assert isinstance(quota, QuotaClosed)
    assert quota.resets_at == NOW + 7200


def test_an_error_inside_of_a_200_stream_is_one() -> None:
    body = 'event: error\ndata: {"error":{"type":"overloaded_error","message":"Overloaded"}}'
    assert isinstance(answer_signals(200, text=body)[0], Overloaded)


@each_row(
    "fields",
    [
        {"type": "user", "message": {"content": [{"type": "tool_result", "content": "429 Too Many Requests"}]}},
        {"type": "item.completed", "item": {"type": "command_execution", "aggregated_output": "rate limit exceeded"}},
        {"type": "item.completed", "item": {"type": "agent_message", "text": "You've hit your usage limit."}},
        {"type": "stream_event", "event": {"delta": {"text": "quota exceeded"}}},
        {"type": "system", "subtype": "init", "tools": ["rate limit exceeded"]},
        {"type": "text", "part": {"text": "API Error: Rate limit reached"}},
        {"type": "tool_use", "part": {"state": {"output": "429 rate limit exceeded"}}},
        {},
        {"type": 5},
        {"type": "rate_limit_event"},
        {"type": "error"},
    ],
)
def test_what_others_wrote_inside_of_an_event_is_no_signal(fields: dict[str, object]) -> None:
    assert read_event("claude-code", fields, seen_at=NOW, tz="UTC") == []
