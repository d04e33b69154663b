"""What a command shows on a screen is left out, and what the CLI prints beside it is kept."""

import pytest

from paceline.detect.shown_output import without_shown_output

BANNER = "You've hit your limit · resets 3pm"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"$ cat notes.txt\n{BANNER}", "$ cat notes.txt"),
        (f"   $ rg limit\n   a.md\n\n   {BANNER}\n{BANNER}", f"   $ rg limit\n{BANNER}"),
        (f"me@host:~/src$ git diff\n+{BANNER}\n$ claude\n{BANNER}", f"me@host:~/src$ git diff\n$ claude\n{BANNER}"),
        (f"⏺ Bash(cat x)\n  ⎿  {BANNER}\n     more\n{BANNER}", f"⏺ Bash(cat x)\n{BANNER}"),
        (f"⏺ Bash(ls)\n  ⎿  a.txt\n  ⎿  {BANNER}", f"⏺ Bash(ls)\n  ⎿  {BANNER}"),
        (f"$ curl -i https://example.org\n\n{BANNER}\n⏺ {BANNER}", f"$ curl -i https://example.org\n⏺ {BANNER}"),
        (f"⏺ Here is the text of the page\n  {BANNER}\n{BANNER}", f"⏺ Here is the text of the page\n{BANNER}"),
        (f"```\n{BANNER}\n```\ndone", "done"),
    ],
)
def test_what_stands_below_a_command_that_shows_things_is_left_out(text: str, kept: str) -> None:
    assert without_shown_output(text) == kept


@pytest.mark.parametrize(
    "text", [BANNER, f"$ claude -p hi\n{BANNER}", f"● Teammate failed\n  ⎿  {BANNER}", f"```\n{BANNER}", "$5 spent"]
)
def test_what_stands_below_other_lines_is_kept(text: str) -> None:
    assert without_shown_output(text) == text
