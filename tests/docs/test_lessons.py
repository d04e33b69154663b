"""Every lesson of docs/decisions/lessons.md has a test that carries its number."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
LESSONS = TESTS.parent / "docs" / "decisions" / "lessons.md"


def test_every_lesson_has_a_test_that_carries_its_number() -> None:
    lessons = [int(number) for number in re.findall(r"^(\d+)\. ", LESSONS.read_text(), re.MULTILINE)]
    sources = "\n".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    tested = {int(number) for number in re.findall(r"def test_lesson_(\d+)_", sources)}

    assert lessons == list(range(1, len(lessons) + 1))
    assert sorted(tested) == lessons
