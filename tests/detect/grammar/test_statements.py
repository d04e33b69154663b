"""The grammar: what is limited, its state, its period, and what makes such words harmless."""

import msgspec
import pytest
from tests.detect.held_out_words import left_out_reports
from tests.detect.sample_files import MESSAGES, MORE_MESSAGES, UNSEEN, WORDINGS, rows_of
from tests.detect.scoring import SOME_TIME, kind_of, samples, times_of

from paceline.detect import Observation, explain
from paceline.detect.grammar.statements import GRAMMAR
from paceline.detect.parsing.text import make_readable
from paceline.detect.providers import KNOWN

# Of the messages in `unseen.jsonl`: what is read right today. Raise the bars with every improvement; never lower them.
LEAST_RIGHT = 276
# Of the messages of providers that were left out one by one.
LEAST_LEFT_OUT = 0.92


class Unseen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One message and its right reading. `alt`: other readings that are also right."""

    provider: str
    channel: str
    text: str
    kind: str
    status: int | None = None
    headers: dict[str, str] | None = None
    after: float | None = None
    alt: tuple[str, ...] = ()


MESSAGES_UNSEEN = [msgspec.json.decode(row, type=Unseen) for row in rows_of(UNSEEN)]


def is_right(row: Unseen) -> bool:
    observation = Observation(
        provider=row.provider,
        channel=row.channel,
        text=row.text,
        status=row.status,
        headers=row.headers,
        seen_at=SOME_TIME,
    )
    signals = explain(observation).signals
    times = [at - SOME_TIME for at in times_of(signals, SOME_TIME)]
    is_reset_right = row.after is None or any(abs(time - row.after) <= 1 for time in times)
    return kind_of(signals) in (row.kind, *row.alt) and is_reset_right


def test_messages_of_services_that_no_rule_knows_are_read_right() -> None:
    wrong = [row for row in MESSAGES_UNSEEN if not is_right(row)]

    assert len(MESSAGES_UNSEEN) - len(wrong) >= LEAST_RIGHT, wrong
    assert [row for row in wrong if row.kind == "none"] == []


def test_a_provider_that_was_left_out_is_read_by_the_words_of_the_others() -> None:
    reports = left_out_reports(samples() + samples(MORE_MESSAGES))

    assert sum(report.right_left_out for report in reports) >= LEAST_LEFT_OUT * sum(report.rows for report in reports)
    assert sum(report.false_alarms_left_out for report in reports) == 0


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Weekly zorp limit reached", "quota"),
        ("Your zorp allowance for this month is used up", "quota"),
        ("Zorps per minute limit exceeded", "rate"),
        ("Too many simultaneous zorps: concurrency cap hit", "platform"),
        ("You are out of zorp credits", "billing"),
        ("The zorp server is overloaded", "overloaded"),
        ("zorpQuotaExceededPerDay", "quota"),
        ("ZorpRateLimitReached", "rate"),
    ],
)
def test_a_statement_is_composed_of_words_in_any_company(text: str, kind: str) -> None:
    stated = [statement.kind for statement in GRAMMAR.statements(text, is_loose=False)]
    assert kind in stated


@pytest.mark.parametrize(
    "text",
    [
        "When the weekly limit is reached, the server answers 429",
        "You have not exceeded your quota",
        "No limit exceeded",
        "Context window limit exceeded",
        "I hit a rate limit",
        'The banner "weekly limit reached" is shown once',
        "The API is limited to 60 requests per minute",
        "previously allocated quota exceeded",
        "docs/weekly/limit-reached.md",
    ],
)
def test_what_is_supposed_denied_quoted_or_a_size_states_nothing(text: str) -> None:
    assert GRAMMAR.statements(text, is_loose=False) == []


def test_whatever_is_stated_has_a_word_that_is_looked_for() -> None:
    texts = [
        msgspec.json.decode(row)["text"] or ""
        for file in (MESSAGES, MORE_MESSAGES, WORDINGS, UNSEEN)
        for row in rows_of(file)
    ]
    stated = [text for text in map(make_readable, texts) if GRAMMAR.statements(text, is_loose=True)]

    assert len(stated) > 500
    assert [text for text in stated if not KNOWN.has_hint(text)] == []
