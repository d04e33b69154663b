"""What an agent shows of files about limits is no limit: code, listings, diffs and docs, in windows cut anywhere."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.detect.scoring import kind_of

from paceline.detect import Observation, explain
from paceline.detect.parsing.text import cleaned
from paceline.detect.speaker import own_lines

ROOT = Path(__file__).parents[2]
FILES = sorted([*ROOT.glob("src/paceline/detect/*.py"), *ROOT.glob("docs/*.md"), *ROOT.glob("tests/detect/test_*.py")])
TELLING = ("limit", "429", "quota", "overload", "credit", "retry", "reset", "usage")
WINDOWS_PER_FILE = 12

Shape = Callable[[list[str]], str]
SHAPES: dict[str, Shape] = {
    "as it stands": "\n".join,
    "tool result": lambda lines: "⏺ Read(file)\n  ⎿  " + "\n     ".join(lines),
    "numbered": lambda lines: "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines, 41)),
    "diff": lambda lines: "\n".join("+- "[number % 3] + line for number, line in enumerate(lines)),
    "numbered diff": lambda lines: "\n".join(f"      {n} {'+- '[n % 3]} {line}" for n, line in enumerate(lines, 41)),
    "framed": lambda lines: "\n".join(f"│ {line[:90]:<90} │" for line in lines),
}


def windows() -> Iterator[list[str]]:
    for file in FILES:
        dice = random.Random(file.name)  # so that a change in one file moves no window of another
        lines = file.read_text("utf-8").split("\n")
        telling = [number for number, line in enumerate(lines) if any(word in line.lower() for word in TELLING)]
        for _ in range(WINDOWS_PER_FILE if telling else 0):
            size = dice.choice((1, 3, 12))
            start = max(0, dice.choice(telling) - dice.randrange(size))
            yield lines[start : start + size]


@pytest.mark.parametrize("shape", SHAPES)
def test_files_about_limits_raise_no_alarm(shape: str) -> None:
    seen = [Observation(provider="claude-code", text=SHAPES[shape](window)) for window in windows()]
    alarms = [one for one in seen if kind_of(explain(one).signals) != "none"]
    assert len(alarms) <= 0.005 * len(seen), [one.text for one in alarms]


@pytest.mark.parametrize(
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
    assert own_lines(cleaned(text)) == (cleaned(text) if own is None else own)
