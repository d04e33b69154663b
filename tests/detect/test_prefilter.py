"""The cheap look before the rules passes over nothing that a rule would read."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.detect.each_row import each_row
from tests.detect.readings import read_line

from paceline.agents.known import LIMITS
from paceline.detect.prefilter import needed_branches, shortest
from paceline.detect.provider import Rule, pattern

# Four letters that `re` takes for others when it ignores case, and no terminal prints in an English word.
_LOOK_ALIKES = "\u0130\u0131\u017f\u212a"
_letters = st.characters(exclude_characters=_LOOK_ALIKES, codec="utf-8")


@each_row("rule", LIMITS.rules, ids=lambda rule: rule.name)
def test_whatever_a_rule_matches_has_a_word_that_is_looked_for(rule: Rule) -> None:
    @settings(max_examples=40, database=None, suppress_health_check=list(HealthCheck))
    @given(st.from_regex(pattern(rule.loose), alphabet=_letters))
    def check(text: str) -> None:
        low = text.casefold()
        assert any(all(any(word in low for word in words) for words in branch) for branch in rule.branches)
        assert LIMITS.has_hint(text)

    check()


@each_row("rule", LIMITS.rules, ids=lambda rule: rule.name)
def test_the_patterns_of_a_rule_compile(rule: Rule) -> None:
    for source in filter(None, (rule.strict, rule.loose, rule.unless)):
        pattern(source)  # raises for what is no regular expression


@each_row(
    ("pattern", "branches"),
    [
        ("limit", [[{"limit"}]]),
        ("a limit", [[{"a"}, {"limit"}]]),
        (r"a\s{1,3}limit", [[{"a"}, {"limit"}]]),
        ("rate[- ]limit(?:ed)?", [[{"rate"}, {"limit"}]]),
        ("quotas? (?:hit|reached)", [[{"quota"}, {"hit", "reached"}]]),
        ("(?:hit|reached)+?", [[{"hit", "reached"}]]),
        ("(?:very )?busy|overload(?=ed)", [[{"busy"}], [{"overload"}]]),
        (r"\d{3} (?!not)(?:[^x\]]{1,3} ){0,2}full", [[{"full"}]]),
        (r"\[1113\]", [[{"[1113]"}]]),
        ("余额不足|credit", [[{"余额不足"}], [{"credit"}]]),
    ],
)
def test_the_words_are_read_off_the_pattern(pattern: str, branches: list[list[set[str]]]) -> None:
    assert [list(branch) for branch in needed_branches(pattern)] == branches


@each_row("pattern", ["", r"\d+", "(?:limit)?", "limit|", "(?:limit|)", "[a-z]{3}", "(?=limit)"])
def test_a_pattern_that_needs_no_word_is_no_rule(pattern: str) -> None:
    with pytest.raises(ValueError, match="no word"):
        needed_branches(pattern)


def test_a_word_that_contains_another_is_not_looked_for_twice() -> None:
    assert shortest(frozenset({"limit", "usage_limit", "quota"})) == ("limit", "quota")


@each_row(
    "line",
    [
        "You\\u2019ve h\\u0069t your lim\\u0069t \\u00b7 resets 3pm",
        "You've hit your li\x1b[31mmit · resets 3pm",
        '429 {"error":{"message":"\\u4f59\\u989d\\u4e0d\\u8db3"}}',
    ],
)
def test_hidden_words_are_not_passed_over(line: str) -> None:
    assert read_line("claude-code", line, channel="stderr", seen_at=1.79e9, tz="UTC")
