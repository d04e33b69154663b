"""The lines that are the CLI's own, and what a screen shows of others."""

import json
from collections.abc import Callable

from tests.detect.each_row import each_row
from tests.detect.sample_files import FILE_WINDOWS, rows_of
from tests.detect.scoring import kind_of

from paceline.detect import Observation, explain
from paceline.detect.text import make_readable, own_lines, with_blanks_for_shown_output

# Windows of 1, 3 or 12 lines around words such as "limit" and "429", out of source, tests and pages about limits.
# They are frozen: windows of the repository's own files would change with every edit.
WINDOWS: list[list[str]] = [json.loads(line) for line in rows_of(FILE_WINDOWS)]
MAX_FALSE_ALARM_RATIO = 0.005

Shape = Callable[[list[str]], str]
SHAPES: dict[str, Shape] = {
    "as it stands": "\n".join,
    "tool result": lambda lines: "⏺ Read(file)\n  ⎿  " + "\n     ".join(lines),
    "numbered": lambda lines: "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines, 41)),
    "diff": lambda lines: "\n".join("+- "[number % 3] + line for number, line in enumerate(lines)),
    "numbered diff": lambda lines: "\n".join(f"      {n} {'+- '[n % 3]} {line}" for n, line in enumerate(lines, 41)),
    "framed": lambda lines: "\n".join(f"│ {line[:90]:<90} │" for line in lines),
}


@each_row("shape", SHAPES)
def test_files_about_limits_raise_no_alarm(shape: str) -> None:
    seen = [Observation(provider="claude-code", text=SHAPES[shape](window)) for window in WINDOWS]
    alarms = [one for one in seen if kind_of(explain(one).signals) != "none"]
    assert len(alarms) <= MAX_FALSE_ALARM_RATIO * len(seen), [one.text for one in alarms]


@each_row(
    ("text", "own"),
    [
        ('API Error: 429 {\n  "error": {\n    "message": "Busy"\n  }\n}\ndone', None),
        ('x = {\n  "error": "Busy"\n}', "}"),
        ('litellm.APIError:\nb\'{"error":"Busy"}\'', None),
        ("Use `429 Busy` here", "Use `x` here"),
        ('Fine\n    "Busy",\nFine', "Fine\nFine"),
    ],
)
def test_a_body_belongs_to_its_error_and_a_literal_to_nobody(text: str, own: str | None) -> None:
    assert own_lines(make_readable(text)) == (make_readable(text) if own is None else own)


@each_row(
    "line",
    [
        '{"level":"error","msg":"rate limit exceeded","tenant":"acme"}',
        'web-1 | level=warn msg="rate limit reached" client=10.1.1.1',
        "An error occurred (Throttling) when calling the DescribeStacks operation: Rate exceeded",
        "twilio.base.exceptions.TwilioRestException: HTTP 429 error: Too Many Requests",
        "AuthenticationError: Invalid API key for mailgun",
        '10.0.0.1 - - "POST /login HTTP/1.1" 429 162',
        "-rw-r--r-- 1 u u 812 Sep 21 10:02 rate_limit_exceeded.md",
        "quota_exhausted.py usage_limit_reached.json",
        "test limiter::tests::daily_quota_exhausted ... ok",
        "Expected: Rate limit exceeded",
        "usage_limit_reached: false",
        "title: Monthly quota exceeded",
        "<p>You have run out of credits.</p>",
        "npm notice rate limited by registry, retrying in 3s",
    ],
)
def test_a_line_of_another_program_is_left_out_by_its_form(line: str) -> None:
    assert own_lines(make_readable(line)) == ""


@each_row(
    "line",
    [
        "An error occurred (ThrottlingException) when calling the ConverseStream operation: Too many requests",
        'WARN retry: Request failed, retrying (3/3): RateLimitExceeded("Too many tokens, please wait")',
        "rpc error: code = ResourceExhausted desc = quota for this hour exceeded",
        "got status: 429 Too Many Requests",
        'com.acme.ApiException: {"statusCode":400,"code":"Arrearage"}',
    ],
)
def test_an_error_of_a_call_of_a_model_is_kept_whatever_it_resembles(line: str) -> None:
    assert own_lines(make_readable(line)) == make_readable(line)


BANNER = "You've hit your limit · resets 3pm"


def without_shown_output(text: str) -> str:
    return "\n".join(filter(None, with_blanks_for_shown_output(text.split("\n"))))


@each_row(
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


@each_row(
    "text", [BANNER, f"$ claude -p hi\n{BANNER}", f"● Teammate failed\n  ⎿  {BANNER}", f"```\n{BANNER}", "$5 spent"]
)
def test_what_stands_below_other_lines_is_kept(text: str) -> None:
    assert without_shown_output(text) == text
