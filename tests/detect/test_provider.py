"""Messages beside the collected ones: other wordings of the same families, and what only looks like them.

`wordings.jsonl`: provider, channel, status, text, and the right reading. `after` is the seconds until the reset, where
the text states it relatively or in UTC; `rule` the rule that the message is an example of. Add a line for every
message that was read wrongly.
"""

import msgspec
from tests.detect import sample_files
from tests.detect.each_row import each_row
from tests.detect.scoring import kind_of, times_of

from paceline.agents.known import LIMITS
from paceline.detect import Observation, compile_patterns, explain
from paceline.detect.provider import pattern

SEEN_AT = 1_790_000_000.0  # Monday, 21 September 2026, 14:13:20 UTC


class Wording(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One message and its right reading."""

    provider: str
    channel: str
    text: str
    kind: str
    status: int | None = None
    after: float | None = None
    rule: str | None = None


WORDINGS = [msgspec.json.decode(line, type=Wording) for line in sample_files.rows_of(sample_files.WORDINGS)]


def seen(wording: Wording) -> Observation:
    return Observation(
        provider=wording.provider,
        channel=wording.channel,
        text=wording.text,
        status=wording.status,
        seen_at=SEEN_AT,
        tz="UTC",
    )


@each_row("wording", WORDINGS, ids=lambda wording: f"{wording.provider}: {wording.text}")
def test_another_wording_is_read_right(wording: Wording) -> None:
    reading = explain(seen(wording))
    assert kind_of(reading.signals) == wording.kind, reading
    assert wording.rule is None or wording.rule in reading.rules, reading
    if wording.after is not None:
        assert any(abs(at - SEEN_AT - wording.after) <= 1 for at in times_of(reading.signals, SEEN_AT)), reading
    if wording.kind == "none":
        assert not times_of(reading.signals, SEEN_AT)


def test_every_rule_is_reached_by_some_message() -> None:
    reached = {name for wording in WORDINGS for name in explain(seen(wording)).rules}
    assert {rule.name for rule in LIMITS.rules} <= reached


def test_once_the_patterns_are_compiled_no_message_has_to_wait_for_one() -> None:
    compile_patterns()
    compiled = pattern.cache_info().misses

    for wording in WORDINGS:
        explain(seen(wording))

    assert pattern.cache_info().misses == compiled
