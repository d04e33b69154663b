"""The words without which a pattern cannot match, derived from the pattern itself.

Here: a reader of the few regex forms that rules are written in. It makes the cheap test before all rules safe: a
text with none of these words matches no rule, and no list has to be kept by hand.
"""

import re

_TOKEN = re.compile(
    r"""(?P<look>\(\?<?[=!])|(?P<open>\((?:\?:|\?-?[a-z]+:)?)|(?P<close>\))|(?P<bar>\|)
    |(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<kind>\\[dDwWsSbB]|[.^$])|\\(?P<escaped>.)|(?P<literal>.)""",
    re.X | re.S,
)
_REPEAT = re.compile(r"(?P<none>\?|\*|\{0?,\d*\}|\{0\})|\+|\{(?P<least>\d+)(?:,\d*)?\}")
Words = frozenset[str]
_NOTHING: Words = frozenset()


def needed_words(pattern: str) -> Words:
    """Return words in lower case, one of which is in every text that the pattern matches.

    Raises ValueError for a pattern that may match without any word: its texts would be skipped.
    """
    words, end = _alternatives(pattern, 0)
    if not words or end != len(pattern):
        raise ValueError(f"no word is in every text that this pattern matches: {pattern}; add one to each branch")
    return words


def shortest(words: Words) -> tuple[str, ...]:
    """Return fewer words that find the same texts: a word that contains another is found with it."""
    return tuple(sorted(word for word in words if not any(other in word for other in words - {word})))


def _alternatives(pattern: str, position: int) -> tuple[Words, int]:
    """Return the words of all branches, or nothing if one branch needs no word."""
    branches: list[Words] = []
    while True:
        words, position = _sequence(pattern, position)
        branches.append(words)
        if pattern[position : position + 1] != "|":
            break
        position += 1
    return (frozenset().union(*branches) if all(branches) else _NOTHING), position


def _sequence(pattern: str, position: int) -> tuple[Words, int]:
    """Return the longest words among the parts that must all follow one another."""
    found: list[Words] = []
    run = ""
    while position < len(pattern):
        token = _TOKEN.match(pattern, position)
        if token is None or token["close"] or token["bar"]:
            break
        position = token.end()
        group = _NOTHING
        if token["open"] or token["look"]:
            group, position = _alternatives(pattern, position)
            position += 1
        letter = token["literal"] or token["escaped"] or ""
        repeat = _REPEAT.match(pattern, position)
        if repeat:
            position = _lazy(pattern, repeat.end())
        if letter and not letter.isspace() and not repeat:
            run += letter
            continue
        found.append(frozenset({run}) if run else _NOTHING)
        run = ""
        if not token["look"] and not (repeat and (repeat["none"] or repeat["least"] == "0")):
            found.append(group)
    found.append(frozenset({run}) if run else _NOTHING)
    return max(found, key=_specificity), position


def _lazy(pattern: str, position: int) -> int:
    return position + 1 if pattern[position : position + 1] in ("?", "+") else position


def _specificity(words: Words) -> int:
    """Return the length of the shortest word in bytes: one Chinese character is as specific as several letters."""
    return min((len(word.encode()) for word in words), default=0)
