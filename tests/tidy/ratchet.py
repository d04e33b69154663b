"""The allow-list: the totals, and what breaks a rule today. It may only shrink.

Here: reading, comparing and writing `tests/tidy_allowed.toml`.
Never here: the budgets; each check has its own.
"""

import json
import re
import tomllib
from collections.abc import Iterable
from typing import NamedTuple

from tests.tidy.source import Finding

SHOWN = 20
"""Findings in one message: with more, the reader sees the pattern anyway."""
HEADER = """\
# The totals, and what breaks a rule of tests/test_tidy.py today. Entries may only shrink: `python -m tests.tidy` lowers
# and removes them, `--accept` also adds. Write the reason for an entry behind it; it is kept.
"""

Allowed = dict[str, dict[str, int]]


class Report(NamedTuple):
    """The findings of one check. `counted`: the values of a key are added up, else the largest one counts."""

    check: str
    counted: bool
    findings: list[Finding]

    @property
    def values(self) -> dict[str, int]:
        values: dict[str, int] = {}
        for finding in self.findings:
            before = values.get(finding.key, 0)
            values[finding.key] = before + finding.value if self.counted else max(before, finding.value)
        return values


def complaints(report: Report, allowed: dict[str, int], *, strict: bool) -> list[str]:
    """Return one line for each finding over what is allowed and, if strict, for each entry that could shrink."""
    values = report.values
    over = {key for key, value in values.items() if value > allowed.get(key, 0)}
    if report.counted and not strict and sum(values.values()) <= sum(allowed.values()):
        over = set()  # modules moved from one package to another
    lines = [
        f"{each.where}: {each.problem} [{report.check}: {each.key} is {values[each.key]}, allowed "
        f"{allowed.get(each.key, 0)}]"
        for each in report.findings
        if each.key in over and (report.counted or each.value > allowed.get(each.key, 0))
    ]
    if len(lines) > SHOWN:
        lines[SHOWN:] = [f"and {len(lines) - SHOWN} more"]
    if strict:
        lines += [
            f"tests/tidy_allowed.toml: [{report.check}] {key} is {values.get(key, 0)}, allowed {value}: shrink the "
            "entry with `python -m tests.tidy`"
            for key, value in allowed.items()
            if values.get(key, 0) < value
        ]
    return lines


def updated(reports: Iterable[Report], allowed: Allowed, *, accept: bool) -> Allowed:
    """Return the allow-list lowered to the present values; with `accept` also raised to them."""
    return {
        report.check: {
            key: value if accept else min(value, allowed.get(report.check, {}).get(key, 0))
            for key, value in sorted(report.values.items())
            if accept or key in allowed.get(report.check, {})
        }
        for report in reports
    }


def read(text: str) -> Allowed:
    """Parse the allow-list."""
    tables: Allowed = tomllib.loads(text)
    return tables


def write(allowed: Allowed, before: str) -> str:
    """Render the allow-list with the reasons that `before` gives behind its entries."""
    reasons = _reasons(before)
    lines = [HEADER]
    for check, entries in allowed.items():
        lines.append(f"\n[{check}]\n")
        lines += [f"{json.dumps(key)} = {value}{reasons.get((check, key), '')}\n" for key, value in entries.items()]
    return "".join(lines)


def _reasons(text: str) -> dict[tuple[str, str], str]:
    reasons: dict[tuple[str, str], str] = {}
    table = ""
    for line in text.splitlines():
        if heading := re.fullmatch(r"\[(\w+)\]", line):
            table = heading[1]
        elif entry := re.fullmatch(r'"(.+)" = \d+(\s+#.*)', line):
            reasons[table, entry[1]] = entry[2]
    return reasons
