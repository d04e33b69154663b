"""The words without which a pattern cannot match, derived from the pattern itself.

Here: a reader of the few regex forms that rules are written in, and the cheap test before all rules. It is safe: a
text without these words matches no rule, and no list has to be kept by hand.
"""

import re
from collections.abc import Iterable

_TOKEN = re.compile(
    r"""(?P<look>\(\?<?[=!])|(?P<open>\((?:\?:|\?-?[a-z]+:)?)|(?P<close>\))|(?P<bar>\|)
    |(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<kind>\\[dDwWsSbB]|[.^$])|\\(?P<escaped>.)|(?P<literal>.)""",
    re.X | re.S,
)
_REPEAT = re.compile(r"(?:(?P<none>\?|\*|\{0?,\d*\}|\{0\})|\+|\{(?P<least>\d+)(?:,\d*)?\})[?+]?")
Words = frozenset[str]
Branch = tuple[Words, ...]
"""What one alternative of a pattern needs: of each of these sets one word."""
_NOTHING: Words = frozenset()
# Words of every log. A set with one of them lets most texts pass, so another set of the branch is looked for first.
_COMMON = frozenset({
    "access", "account", "active", "address", "agent", "available", "background", "cannot", "cap", "child",
    "closed", "code", "config", "connect", "connection", "could", "error", "established", "extra", "failed",
    "failure", "free", "headers", "high", "host", "http", "in-flight", "increase", "log", "max", "message",
    "missing", "operation", "plan", "process", "reached", "rejected", "request", "required", "requires",
    "resolve", "response", "route", "running", "sending", "server", "service", "session", "setting", "sign", "slot",
    "slow", "socket", "status", "such", "temporarily", "thread", "timeout", "tokens", "unable", "using", "valid",
    "version", "without", "worker"
})  # fmt: skip


_BY_FREQUENCY = "zqjxkvbpygfwmucldrhsnioate"
"""The letters from the rarest to the commonest in English."""
_SHORTEST = 4
"""Bytes of a word that is not found by chance in others."""


def needed_branches(pattern: str) -> tuple[Branch, ...]:
    """Return what the alternatives of a pattern need: a text that it matches has all that one of them needs.

    Raises ValueError for a pattern that may match without any word: its texts would be skipped.
    """
    branches: list[Branch] = []
    position = -1
    while position < 0 or pattern[position : position + 1] == "|":
        parts, position = _parts(pattern, position + 1)
        branches.append(tuple(dict.fromkeys(part for part in parts if part)))
    if not all(branches) or position != len(pattern):
        raise ValueError(f"no word is in every text that this pattern matches: {pattern}; add one to each branch")
    return tuple(branches)


def telling_words(branches: Iterable[Branch]) -> tuple[str, ...]:
    """Return few words, one of which is in every text that has all that one of the branches needs."""
    different = list(dict.fromkeys(branches))
    chosen: set[str] = set()
    unfound = frozenset(word for branch in different for words in branch for word in words)
    for branch in sorted(different, key=len):
        new = [words & unfound for words in branch]
        best = min(zip(new, branch, strict=True), key=lambda option: (_commonness(option[1]), len(option[0])))[0]
        chosen |= best
        unfound = frozenset(word for word in unfound if not any(other in word for other in best)) if best else unfound
    return shortest(frozenset(chosen))


def _commonness(words: Words) -> tuple[int, int]:
    """Return how much text a set lets through, by its commonest word. Short words are parts of many others."""
    is_short = any(len(word.encode()) < _SHORTEST and not word.isdigit() for word in words)
    return 2 if is_short else int(not words.isdisjoint(_COMMON)), -_specificity(words)


def shortest(words: Words) -> tuple[str, ...]:
    """Return fewer words that find the same texts: a word that contains another is found with it."""
    return tuple(sorted(word for word in words if not any(other in word for other in words - {word})))


def word_finder(words: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that finds every line with one of the words. Each match runs to the end of its line.

    It looks for one rare letter of each word, and only there for the rest of the word: in most texts that is several
    times faster than to look for each word, or for their first letters. A match begins at that letter.
    """
    by_anchor: dict[str, list[tuple[str, str]]] = {}
    every = sorted(set(words))
    letters = _anchor_letters(every)
    for word in every:
        place = min((index for index, letter in enumerate(word) if letter in letters), key=lambda at: _rank(word[at]))
        check = f"(?<={re.escape(word)})" if place else ""
        by_anchor.setdefault(word[place], []).append((word[place + 1 :], check))
    return re.compile(f"{_either(re.escape(letter) + _tree(rests) for letter, rests in by_anchor.items())}[^\\n]*")


def _anchor_letters(words: list[str]) -> set[str]:
    """Return letters, one of which is in each word: rare ones, and none that the others make needless."""
    letters = {min(word, key=_rank) for word in words}
    for letter in sorted(letters, key=_rank, reverse=True):
        if all(not letters.isdisjoint(set(word) - {letter}) for word in words):
            letters.discard(letter)
    return letters


def _rank(letter: str) -> int:
    """Return how common a letter is. What is no letter of the alphabet is rarer than all that are."""
    return _BY_FREQUENCY.find(letter)


def _tree(rests: list[tuple[str, str]]) -> str:
    """Return a pattern of words that begin alike: what may follow, each with the check at its end."""
    by_letter: dict[str, list[tuple[str, str]]] = {}
    for rest, check in rests:
        if rest:
            by_letter.setdefault(rest[0], []).append((rest[1:], check))
    ended = (check for rest, check in rests if not rest)
    return _either([*ended, *(re.escape(letter) + _tree(more) for letter, more in by_letter.items())])


def _either(sources: Iterable[str]) -> str:
    return f"(?:{'|'.join(sources)})"


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
    parts, position = _parts(pattern, position)
    return max(parts, key=_specificity), position


def _parts(pattern: str, position: int) -> tuple[list[Words], int]:
    """Return the words of the parts that must all follow one another, each as a set of which one is needed."""
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
            position = repeat.end()
        if letter and not letter.isspace() and not repeat:
            run += letter
            continue
        found.append(frozenset({run}) if run else _NOTHING)
        run = ""
        if not token["look"] and not (repeat and (repeat["none"] or repeat["least"] == "0")):
            found.append(group)
    found.append(frozenset({run}) if run else _NOTHING)
    return found, position


def _specificity(words: Words) -> int:
    """Return the length of the shortest word in bytes: one Chinese character is as specific as several letters."""
    return min((len(word.encode()) for word in words), default=0)
