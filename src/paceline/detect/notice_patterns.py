"""The patterns of all providers' notices, combined once.

Here: what a notice states by its form: a retry, a denied call, a conversation. Never here: the words of any provider,
or what a notice states about limits.
"""

import re
from collections.abc import Iterable
from functools import cached_property

from paceline.detect.provider import NoticeRules
from paceline.detect.run_facts import Denial


class NoticePatterns:
    """How the CLIs word their own notices."""

    def __init__(self, rules: Iterable[NoticeRules]) -> None:
        self._rules = tuple(rules)

    @cached_property
    def first_line(self) -> re.Pattern[str]:
        """Matches the first line of a notice that spans several."""
        return any_of(rules.first_line for rules in self._rules)

    @cached_property
    def last_line(self) -> re.Pattern[str]:
        """Matches the last line of such a notice."""
        return any_of(rules.last_line for rules in self._rules)

    @cached_property
    def retry(self) -> re.Pattern[str]:
        """Found in the announcement of a retry."""
        return any_of(rules.retry for rules in self._rules)

    @cached_property
    def untrusted(self) -> re.Pattern[str]:
        """Found in the warning that a folder's permissions are ignored."""
        return any_of(rules.untrusted for rules in self._rules)

    @cached_property
    def stopped_answers(self) -> frozenset[str]:
        """Each is all that some CLI prints as an answer when it is interrupted."""
        return frozenset(filter(None, (rules.stopped_answer for rules in self._rules)))

    def denial_in(self, notice: str) -> Denial | None:
        """Return the denied tool call that a notice reports."""
        found = self._denied.search(notice)
        return None if found is None else Denial(tool=next((tool for tool in found.groups() if tool), ""))

    def session_in(self, notice: str) -> str | None:
        """Return the session id in a hint how to resume a conversation."""
        found = self._resume_hint.match(notice)
        return found[found.lastindex] if found and found.lastindex else None

    @cached_property
    def _denied(self) -> re.Pattern[str]:
        return any_of(rules.denied for rules in self._rules)

    @cached_property
    def _resume_hint(self) -> re.Pattern[str]:
        return any_of(rules.resume for rules in self._rules)


def any_of(sources: Iterable[str], flags: int = 0) -> re.Pattern[str]:
    """Return a pattern that matches what any of the sources matches; without sources it matches nothing."""
    return re.compile("|".join(f"(?:{source})" for source in sources if source) or r"(?!)", flags)
