"""What checks of a machine have found, and how it is printed."""

from collections.abc import Sequence
from typing import Literal

import msgspec
from rich.text import Text

from paceline.cli.output import one_line, out

MARKS = {"ok": ("ok  ", "green"), "note": ("note", "yellow"), "wrong": ("BAD ", "bold red")}


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename={"fix": "mend"}):
    """The result of one check, and how to fix it. The JSON key of `fix` is `mend`: programs rely on it."""

    what: str
    verdict: Literal["ok", "note", "wrong"]
    detail: str
    fix: str | None = None


def print_findings(findings: Sequence[Finding]) -> None:
    """Print each finding as a line, with its fix below, and how many there are to fix."""
    console = out()
    for finding in findings:
        mark, style = MARKS[finding.verdict]
        console.print(Text.assemble((mark, style), f" {finding.what + ' ':<16}", one_line(finding.detail, 300)))
        if finding.fix is not None:
            console.print(Text.assemble(" " * 21, ("fix: ", "bold"), one_line(finding.fix, 300)))
    wrong = sum(finding.verdict == "wrong" for finding in findings)
    end = "Nothing is wrong." if not wrong else f"{wrong} to fix."
    console.print(Text(end, style="bold green" if not wrong else "bold red"))
