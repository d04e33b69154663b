"""The glossary defines each word once, and in the order of its tables."""

import re
from collections import Counter
from pathlib import Path

GLOSSARY = Path(__file__).parents[2] / "docs" / "glossary.md"
DEFINITION = re.compile(r"^\| \*\*(?P<word>[^*]+)\*\* \| (?P<meaning>.+) \|$", re.MULTILINE)


def test_each_word_is_defined_once() -> None:
    words = Counter(found["word"].casefold() for found in DEFINITION.finditer(GLOSSARY.read_text()))

    assert [word for word, count in words.items() if count > 1] == []
    assert len(words) > 40


def test_each_meaning_is_a_sentence() -> None:
    meanings = {found["word"]: found["meaning"] for found in DEFINITION.finditer(GLOSSARY.read_text())}

    assert [word for word, meaning in meanings.items() if not (meaning[0].isupper() and meaning.endswith("."))] == []


def test_the_words_the_code_relies_on_are_defined() -> None:
    words = {found["word"] for found in DEFINITION.finditer(GLOSSARY.read_text())}

    assert words >= {
        "attempt",
        "campaign",
        "canary",
        "claim",
        "conversation",
        "group",
        "lane",
        "lease",
        "place claim",
        "probe",
        "release lag",
        "run",
        "scope",
        "session",
        "slot",
        "slow start",
        "ticket",
        "unit",
        "wave",
        "window",
    }
