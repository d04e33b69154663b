"""The words of limits, each under the one concept that it stands for, and a text as a string of concepts.

Here: the concepts, and `lexicon.tsv` with their words, read once as a module is. A word that is added there works in
every form of `grammar.py`. Never here: which sequences of concepts are a statement.
"""

import pkgutil
import re
from bisect import bisect_left
from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property

import msgspec


class Concept(StrEnum):
    """What a word stands for. The value is its letter in an encoded text."""

    # What is limited
    LIMIT = "l"
    WINDOW = "V"  # of a period, or of the context
    QUOTA = "q"
    CURRENT = "Q"  # "your current quota": money at some providers, a rate at others
    USAGE = "u"
    COUNTED = "r"  # requests: what a rate or a window counts
    TOKENS = "b"  # also the size of a conversation
    WORKER = "w"
    AGENT = "1"  # a worker that only a CLI of ours has
    SLOT = "S"
    PARALLEL = "c"
    MONEY = "$"
    ARREARS = "6"  # money that is owed: a state and what it is about in one word
    TOTAL = "9"  # of all time: no wait frees it
    BUDGET = "d"  # of money, but also of bytes, errors and milliseconds
    CAPACITY = "k"
    LOAD = "D"
    RATE = "R"
    ACCOUNT = "n"
    OVERSIZE = "Z"
    SIZE = "z"  # of one request, file or conversation: no wait changes it
    # Its period
    SHORT = "p"
    RATE_NAME = "G"  # RPM: a rate with its period
    LONG = "P"
    # Its state
    SPENT = "s"
    GONE = "X"  # spent, where it follows what is spent: "spent 3 of your credits" is a meter
    LACKING = "i"
    USED = "v"
    OUT = "o"
    NONE = "0"
    NIL = "8"  # the number
    LEFT = "L"
    ALL = "A"
    TAKEN = "B"
    TOO_MANY = "M"
    THROTTLED = "T"
    LIMITED = "j"
    LIMITING = "J"  # that there is a limit, not that it was met
    COOLING = "C"
    BUSY = "O"
    HIGH = "H"
    WAITING = "g"
    AT = "@"
    OVER = "2"
    DUE = "y"
    NEEDED = "K"
    # Words between them
    YOUR = "Y"
    PLAN = "I"  # whose limit it is: that of a plan, not of a minute
    MODEL = "m"
    AUXILIARY = "a"
    HOUR = "h"  # a period after a number, else a word
    OF = "f"
    TO = "t"
    CONNECTIVE = ">"
    UNTIL = "<"  # what follows states when it ends
    ERROR = "e"
    REFUSED = "5"  # that a call failed: its reason follows
    FILLER = "_"  # it names nothing
    REMEDY = "-"  # what a customer can do about it
    PRODUCT = "U"  # of a provider of models: nobody else's limit
    # What makes them harmless
    WE = "W"
    PROSE = "!"
    FOREIGN = "F"  # whose limit it is: that of a database, a build, a calendar
    NOT = "N"


OTHER = "x"
"""A word without a concept."""


class Lexicon(msgspec.Struct, frozen=True, dict=True):
    """Words and pairs of words with their concepts."""

    words: Mapping[str, str]
    pairs: Mapping[tuple[str, str], str]

    @cached_property
    def others(self) -> tuple[str, ...]:
        """The words of scripts that put no spaces between words, the longest first."""
        return tuple(sorted((word for word in self.words if word >= "\u3040"), key=len, reverse=True))

    def words_of(self, *concepts: Concept) -> frozenset[str]:
        """Return the words of some concepts."""
        return frozenset(word for word, concept in self.words.items() if concept in concepts)

    @cached_property
    def finder_of_others(self) -> re.Pattern[str]:
        """Finds those words within longer ones."""
        return re.compile("|".join(map(re.escape, self.others)) or r"(?!)")

    @cached_property
    def seconds(self) -> frozenset[str]:
        """The second words of all pairs."""
        return frozenset(second for _, second in self.pairs)


def _shipped_lexicon() -> Lexicon:
    """Return the words of `lexicon.tsv`: in each row a concept and some of its words, with `+` within a pair."""
    words: dict[str, str] = {}
    pairs: dict[tuple[str, str], str] = {}
    table = pkgutil.get_data(__package__, "lexicon.tsv")
    assert table is not None, "every loader of packages has their data"
    for row in table.decode().splitlines():
        name, _, listed = row.partition("\t")
        for word in listed.split():
            first, plus, second = word.partition("+")
            if plus:
                pairs[first, second] = Concept[name].value
            else:
                words[word] = Concept[name].value
    return Lexicon(words=words, pairs=pairs)


LEXICON = _shipped_lexicon()


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


class Encoded:
    """The concepts of a text as letters, from its beginning, and for each where it begins and ends.

    `joined`: "1" within an identifier, "-" within words that hyphens join, else "0".
    """

    def __init__(self, text: str, lexicon: Lexicon) -> None:
        self.starts = [0]
        self.ends = [0]
        self._text = text
        self._lexicon = lexicon
        self._letters = [BEGIN]
        self._joined = ["0"]
        self._line_ends: list[int] = []
        self._add_tokens()
        self.letters = "".join(self._letters)
        self.joined = "".join(self._joined)

    def beside(self, start: int, end: int, *, reach: int) -> tuple[str, str]:
        """Return up to `reach` letters before `start` and after `end`, within their lines."""
        after = bisect_left(self._line_ends, start)
        first = self._line_ends[after - 1] + 1 if after else 0
        following = bisect_left(self._line_ends, end)
        last = self._line_ends[following] if following < len(self._line_ends) else len(self.letters)
        return self.letters[max(first, start - reach) : start], self.letters[end : min(last, end + reach)]

    def identifier(self, start: int, end: int) -> tuple[int, int]:
        """Return where the identifier begins and ends that these letters are a part of."""
        after = self.joined.find("0", end)
        return self.joined.rfind("0", 0, start) + 1, len(self.joined) if after < 0 else after

    def _add_tokens(self) -> None:
        text, letters = self._text, self._letters
        before = ""
        for token in _TOKEN.finditer(text):
            if len(letters) >= MAX_WORDS:
                break
            kind = token.lastgroup
            if kind == "word":
                before = self._add_word(token, before)
                continue
            if kind == "line":
                self._line_ends.append(len(letters))
            is_quoted = letters[-1] == CLOSED and text[token.start() - 1] in _QUOTES
            self._add(_letter_of(kind, token, text, before, is_quoted=is_quoted), token.start(), token.end())
            before = ""

    def _add_word(self, token: re.Match[str], before: str) -> str:
        """Add a word. Return it if the next one may make a pair of it, else ''."""
        raw = token[0]
        word = raw.rstrip("-_")
        start = token.start()
        if not raw.isascii() and any(letter >= _FIRST_WITHOUT_SPACES for letter in word):
            return self._add_without_spaces(word, start)
        is_joined = self._is_joined_to(start, "_")
        if not raw.islower():
            if word in _LEVELS and not is_joined:
                self._add(LEVEL, start, token.end())
                return ""
            if _CAMEL.match(word):
                return self._add_humps(word, start, before)
            word = word.lower()
        joined = "1" if raw[-1] == "_" or is_joined else "0"
        if joined == "0" and (raw[-1] == "-" or self._is_joined_to(start, "-")):
            joined = "-"
        return self._add_one(word, start, before, joined)

    def _add_without_spaces(self, word: str, start: int) -> str:
        """Add the known words of a script without spaces, and what stands before them: it says whose limit it is.

        What is between them is no word of its own.
        """
        pieces = list(self._lexicon.finder_of_others.finditer(word))
        if pieces and pieces[0].start() > 1:
            self._add(OTHER, start, start + pieces[0].start())
        for piece in pieces:
            self._add(self._lexicon.words[piece[0]], start + piece.start(), start + piece.end())
        if not pieces:
            self._add(OTHER, start, start + len(word))
        return ""

    def _add_humps(self, word: str, start: int, before: str) -> str:
        """Add the words of an identifier like `TooManyRequests`."""
        for hump in _HUMP.finditer(word):
            before = self._add_one(hump[0].lower(), start + hump.start(), before, "1")
        return before

    def _add_one(self, word: str, start: int, before: str, joined: str) -> str:
        end = start + len(word)
        if before and word in self._lexicon.seconds and (concept := self._lexicon.pairs.get((before, word))):
            self._letters[-1], self.ends[-1] = concept, end
            return ""
        letter, last = self._lexicon.words.get(word, OTHER), self._letters[-1]
        if letter in _PARTS_OF_NAMES and last in (OTHER, Concept.PRODUCT) and self._is_joined_to(start, "-"):
            letter = OTHER  # the end of a name: `inventory-service`, `kimi-for-coding`
        if letter == Concept.HOUR:
            letter = Concept.LONG.value if last in (NUMBER, STATUS) else OTHER
        self._add(letter, start, end, joined)
        return word

    def _add(self, letter: str, start: int, end: int, joined: str = "0") -> None:
        if letter:
            self._letters.append(letter)
            self.starts.append(start)
            self.ends.append(end)
            self._joined.append(joined)

    def _is_joined_to(self, start: int, mark: str) -> bool:
        return start > 0 and self._text[start - 1] == mark


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
