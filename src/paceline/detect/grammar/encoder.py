"""A text as a string of concepts, one letter for each word, with the place of every word in the text.

Here: words, numbers and the boundaries of statements. Never here: which sequences of concepts are a statement.
"""

import re
from bisect import bisect_left

import msgspec

from paceline.detect.grammar.lexicon import OTHER, Concept, Lexicon

BEGIN = "|"
"""A statement may begin here."""
CLOSED = '"'
"""A statement ends here, and none begins: words in quotes, paths, addresses."""
COMMA = ","
NUMBER = "#"
STATUS = "4"
"""A number that may be an HTTP status: a statement may begin after it."""
WHOLE = "%"
"""100% and more, 15 of 15."""
SHARE = "&"
"""Less than 100%, 3/15: nothing is spent."""
LEVEL = "E"
"""The level of a log line: a statement may begin after it."""
OPEN, CLOSE = "()"
"""An aside: a statement may begin in it or after it, and may continue after it."""
STARTS = BEGIN + STATUS + LEVEL + OPEN + CLOSE
MAX_WORDS = 24_000
"""Words of a text that are encoded: as many as the kept ends of a huge text can have."""

_TOKEN = re.compile(
    r"""(?P<word>[^\W\d_]+(?:'[^\W\d_]+)?(?:[-_](?=[^\W\d_]))?)
    |(?<![\d/])(?P<part>\d{1,9}(?:\.\d{1,2})?)\s?(?:/|of|out\sof)\s?(?P<ratio>\d{1,9}(?:\.\d{1,2})?)(?![\d/.:])
    |(?P<broke>[$＄](?:-\d[\d.]{0,12}|0(?:\.0{1,6})?(?![\d.])))
    |(?P<number>\d[\d.,]*\d|\d)(?P<percent>%)?
    |(?P<line>\n)
    |(?P<stop>[.!?;](?=\s|$)|[·|{}\[\]>])
    |(?P<aside>[()])
    |(?P<colon>:(?!\d))
    |(?P<dash>(?<=\s)[-–—](?=\s))
    |(?P<quote>["'])
    |(?P<equals>=)
    |(?P<comma>,)
    |(?P<inside>(?<!\s)/|/(?!\s)|[\\@`~<.])""",
    re.X,
)
_HUMP = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\WA-Z\d_]+")
_CAMEL = re.compile(r"[^\W\d_]*[a-z][A-Z][a-z]")
_QUOTES = "\"'`"
_BEFORE_QUOTE = ":=({[,"
# The body of an answer follows its status: `403 Forbidden "Your team has used all of its credits"`.
_AFTER_STATUS = re.compile(r"\b[45]\d\d(?:\s[A-Z][a-z]{1,20}){0,4}$")
LONGEST_REASON = 64
"""Characters before a quote that are read: an HTTP status and its reason."""
# Words in quotes after which the sentence continues: `Chapter 4: "Too Many Requests" and its friends`.
_TITLE = re.compile(r"""(?<=:\s)(["'])[^"'\n]{1,80}\1\s[a-z]+\s(?!=)""")
_NAMED = frozenset({"error", "message", "msg", "err", "reason", "detail", "text", "desc"})
_LEVELS = frozenset({"ERROR", "WARN", "WARNING", "FATAL"})
_PARTS_OF_NAMES = frozenset({Concept.MODEL.value, Concept.CONNECTIVE.value, Concept.PROSE.value, Concept.TO.value})
_FIRST_WITHOUT_SPACES = "\u3040"


class Encoded(msgspec.Struct, frozen=True):
    """The concepts of a text as letters, and for each where it begins and ends.

    `joined`: "1" within an identifier, "-" within words that hyphens join, else "0".
    """

    letters: str
    starts: list[int]
    ends: list[int]
    joined: str
    line_ends: list[int]

    def beside(self, start: int, end: int, *, reach: int) -> tuple[str, str]:
        """Return up to `reach` letters before `start` and after `end`, within their lines."""
        after = bisect_left(self.line_ends, start)
        first = self.line_ends[after - 1] + 1 if after else 0
        following = bisect_left(self.line_ends, end)
        last = self.line_ends[following] if following < len(self.line_ends) else len(self.letters)
        return self.letters[max(first, start - reach) : start], self.letters[end : min(last, end + reach)]

    def identifier(self, start: int, end: int) -> tuple[int, int]:
        """Return where the identifier begins and ends that these letters are a part of."""
        after = self.joined.find("0", end)
        return self.joined.rfind("0", 0, start) + 1, len(self.joined) if after < 0 else after


class Encoder:
    """Encodes texts with the words of one lexicon."""

    def __init__(self, lexicon: Lexicon) -> None:
        self._words = lexicon.words
        self._pairs = lexicon.pairs
        self._others = re.compile("|".join(map(re.escape, lexicon.others)) or r"(?!)")
        self._seconds = frozenset(second for _, second in lexicon.pairs)

    def encode(self, text: str) -> Encoded:
        """Return the concepts of a text, from its beginning."""
        building = _Building(text)
        before = ""
        for token in _TOKEN.finditer(text):
            if len(building.letters) >= MAX_WORDS:
                break
            kind = token.lastgroup
            if kind == "word":
                before = self._add_word(building, token, before)
                continue
            if kind == "line":
                building.line_ends.append(len(building.letters))
            is_quoted = building.letters[-1] == CLOSED and text[token.start() - 1] in _QUOTES
            building.add(_letter_of(kind, token, text, before, is_quoted=is_quoted), token.start(), token.end())
            before = ""
        return building.done()

    def _add_word(self, building: "_Building", token: re.Match[str], before: str) -> str:
        raw = token[0]
        word = raw.rstrip("-_")
        start = token.start()
        if not raw.isascii() and any(letter >= _FIRST_WITHOUT_SPACES for letter in word):
            return self._add_without_spaces(building, word, start)
        if not raw.islower():
            if word in _LEVELS and not building.is_joined_to(start):
                building.add(LEVEL, start, token.end())
                return ""
            if _CAMEL.match(word):
                return self._add_humps(building, word, start, before)
            word = word.lower()
        joined = "1" if raw[-1] == "_" or building.is_joined_to(start) else "0"
        if joined == "0" and (raw[-1] == "-" or building.is_joined_to(start, "-")):
            joined = "-"
        return self._add_one(building, word, start, before, joined)

    def _add_without_spaces(self, building: "_Building", word: str, start: int) -> str:
        """Add the known words of a script without spaces, and what stands before them: it says whose limit it is.

        What is between them is no word of its own.
        """
        pieces = list(self._others.finditer(word))
        if pieces and pieces[0].start() > 1:
            building.add(OTHER, start, start + pieces[0].start())
        for piece in pieces:
            building.add(self._words[piece[0]], start + piece.start(), start + piece.end())
        if not pieces:
            building.add(OTHER, start, start + len(word))
        return ""

    def _add_humps(self, building: "_Building", word: str, start: int, before: str) -> str:
        """Add the words of an identifier like `TooManyRequests`."""
        for hump in _HUMP.finditer(word):
            before = self._add_one(building, hump[0].lower(), start + hump.start(), before, "1")
        return before

    def _add_one(self, building: "_Building", word: str, start: int, before: str, joined: str) -> str:
        end = start + len(word)
        if before and word in self._seconds and (concept := self._pairs.get((before, word))):
            building.replace(concept, end)
            return ""
        letter = self._words.get(word, OTHER)
        if letter in _PARTS_OF_NAMES and building.ends_in_a_name(start):
            letter = OTHER
        if letter == Concept.HOUR:
            letter = Concept.LONG.value if building.letters[-1] in (NUMBER, STATUS) else OTHER
        building.add(letter, start, end, joined)
        return word


class _Building:
    """An encoded text while it is made."""

    def __init__(self, text: str) -> None:
        self.letters: list[str] = [BEGIN]
        self.line_ends: list[int] = []
        self._starts = [0]
        self._ends = [0]
        self._joined = ["0"]
        self._text = text

    def add(self, letter: str, start: int, end: int, joined: str = "0") -> None:
        if letter:
            self.letters.append(letter)
            self._starts.append(start)
            self._ends.append(end)
            self._joined.append(joined)

    def replace(self, letter: str, end: int) -> None:
        """Replace the concept of the previous word, now that the next word is known."""
        self.letters[-1] = letter
        self._ends[-1] = end

    def is_joined_to(self, start: int, mark: str = "_") -> bool:
        """Return whether what begins here continues an identifier, or words that another mark joins."""
        return start > 0 and self._text[start - 1] == mark

    def ends_in_a_name(self, start: int) -> bool:
        """Return whether what begins here is the end of a name: `inventory-service`, `kimi-for-coding`."""
        return start > 0 and self._text[start - 1] == "-" and self.letters[-1] in (OTHER, Concept.PRODUCT)

    def done(self) -> Encoded:
        return Encoded("".join(self.letters), self._starts, self._ends, "".join(self._joined), self.line_ends)


def _letter_of(kind: str | None, token: re.Match[str], text: str, before: str, *, is_quoted: bool) -> str:
    """Return the letter of a token that is not a word: a number, a sign or a quote."""
    match kind:
        case "number" | "percent":
            number = token["number"]
            if token["percent"]:
                return WHOLE if len(number.partition(".")[0]) >= 3 else SHARE
            if number == "0":
                return Concept.NIL.value
            return STATUS if len(number) == 3 and number[0] in "45" and not is_quoted else NUMBER
        case "broke":
            return Concept.NONE.value
        case "ratio":
            return WHOLE if float(token["part"]) >= float(token["ratio"]) else SHARE
        case "line" | "stop" | "colon" | "dash":
            return BEGIN
        case "quote":
            left = text[max(0, token.start() - LONGEST_REASON) : token.start()].rstrip()
            opens = left[-1:] in _BEFORE_QUOTE or bool(_AFTER_STATUS.search(left))
            return BEGIN if opens and not _TITLE.match(text, token.start()) else CLOSED
        case "equals":
            return BEGIN if before in _NAMED else CLOSED
        case "aside":
            return token[0]
        case "comma":
            return COMMA
    return CLOSED
