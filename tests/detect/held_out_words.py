"""Leave one provider out: each provider's messages, read by the grammar as if that provider had never been seen.

For each provider its rows are read with the shared rules alone: no module of any provider is known, and the grammar
does not know the words that occur in the messages of no other provider.

`python -m tests.detect.held_out_words` prints the table of docs/detection.md.
"""

import re
from collections import defaultdict

import msgspec
from tests.detect.held_out import judge
from tests.detect.sample_files import MORE_MESSAGES
from tests.detect.scoring import Sample, samples

from paceline.agents.known import LIMITS
from paceline.detect import shared_rules
from paceline.detect.grammar import Grammar
from paceline.detect.lexicon import LEXICON, Lexicon
from paceline.detect.provider import ProviderSet

_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
FEW = 6
"""Rows. Providers with fewer are shown together."""


class LeftOut(msgspec.Struct, frozen=True):
    """How one provider is read by all rules, and by rules that know nothing of it."""

    provider: str
    rows: int
    right: int
    right_left_out: int
    resets_left_out: int
    false_alarms_left_out: int
    withheld: tuple[str, ...]


def left_out_reports(rows: list[Sample]) -> list[LeftOut]:
    by_provider: dict[str, list[Sample]] = defaultdict(list)
    for row in rows:
        by_provider[row.provider].append(row)
    return [_report(provider, mine, rows) for provider, mine in sorted(by_provider.items())]


def _report(provider: str, mine: list[Sample], rows: list[Sample]) -> LeftOut:
    own = _words(mine) - _words([row for row in rows if row.provider != provider])
    withheld = frozenset(LEXICON.words) & own
    lexicon = Lexicon(
        words={word: concept for word, concept in LEXICON.words.items() if word not in withheld}, pairs=LEXICON.pairs
    )
    shared = ProviderSet((shared_rules.PROVIDER,), grammar=Grammar(lexicon))
    judged = [judge(row, shared) for row in mine]
    return LeftOut(
        provider=provider,
        rows=len(mine),
        right=sum(judge(row, LIMITS)[0] for row in mine),
        right_left_out=sum(kind for kind, _ in judged),
        resets_left_out=sum(reset for _, reset in judged),
        false_alarms_left_out=sum(
            row.expected.kind == "none" and not kind for row, (kind, _) in zip(mine, judged, strict=True)
        ),
        withheld=tuple(sorted(withheld)),
    )


def _words(rows: list[Sample]) -> set[str]:
    """Return the words of some messages, and the words of scripts without spaces that are part of them."""
    text = "\n".join(row.text for row in rows).replace("’", "'")
    return {word.lower() for word in _WORD.findall(text)} | {word for word in LEXICON.others if word in text}


def table(reports: list[LeftOut]) -> list[str]:
    """Return the rows of the table in docs/detection.md."""
    lines = [
        "| provider | messages | all rules | left out | resets | false alarms | words withheld |",
        "|---|---|---|---|---|---|---|",
    ]
    many = [report for report in reports if report.rows >= FEW]
    few = [report for report in reports if report.rows < FEW]
    lines += [_line(report.provider, [report]) for report in many]
    return [*lines, _line(f"{len(few)} others", few), _line("all", reports)]


def _line(name: str, reports: list[LeftOut]) -> str:
    rows = sum(report.rows for report in reports)
    shares = (
        sum(values) / rows
        for values in zip(*((one.right, one.right_left_out, one.resets_left_out) for one in reports), strict=True)
    )
    alarms = sum(report.false_alarms_left_out for report in reports)
    withheld = len({word for report in reports for word in report.withheld})
    return f"| {name} | {rows} | {' | '.join(f'{share:.0%}' for share in shares)} | {alarms} | {withheld} |"


if __name__ == "__main__":
    print("\n".join(table(left_out_reports(samples() + samples(MORE_MESSAGES)))))
