"""Readable text: without colours, boxes, padding, escapes and odd punctuation, with wrapped lines joined.

Here: cleaning, and an error in one line for people, out of JSON bodies, dumps and wrapped text. Never here: whose words
a line is (`own_lines.py`), or what a sentence means.
"""

import json
import re

from paceline.detect.json_objects import find_documents, text_at

WRAP = "\x1f"
"""Marks where a wrapped line was joined: white space to every pattern, yet no end of a line."""
SOFT = "\x1e"
"""Begins a line that is an agent's bullet, a list item or the result of a tool."""
HEAD = 12_000
"""Characters read at the beginning of a huge text, where an error states its limit."""
TAIL = 12_000
"""Characters read at its end, where a screen shows one. What is between is skipped, so that time stays bounded."""

_ANSI = re.compile(r"\x1b\[[0-?]{0,32}[ -/]{0,8}[@-~]|\x1b\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)?|\x1b[ -/]{0,4}[0-~]")
ODD = str.maketrans(
    {
        "’": "'", "‘": "'", "ʼ": "'", "′": "'", "“": '"', "”": '"', "∙": "·", "•": "·", "・": "·", "‧": "·", "⋅": "·",
        "\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u2007": " ", "\u3000": " ", "\t": " ", "\u200b": None,
        "\u200c": None, "\u200d": None, "\ufeff": None, "\u2060": None, "\u00ad": None, "\x00": None,
        "‑": "-", "‐": "-",
        "（": "(", "）": ")", "：": ":", "，": ", ", "。": ". ", "！": "!", "；": ";", "［": "[", "］": "]", "｜": "|",
        "\r": "\n", "\x0b": "\n", "\x0c": "\n", "\x85": "\n", "\u2028": "\n", "\u2029": "\n", "…": "...",
    }
)  # fmt: skip
_BOX = re.compile(r"[\u2500-\u259f]+")
# Borders, bullets and prompts at the edges of a line: decoration of a screen, quoting of a log.
_EDGE_LEFT = re.compile(r"""^[^\w"'(){}\[\]<$/\\#+~.@&`:=-]{1,200}""")
# An agent's bullet or a list is prose, so only its first words can be the CLI's own.
_BULLET = re.compile(r"^\s{0,12}(?:[⏺●•·]|[-*]\s|\d{1,2}[.)]\s|⎿)")
_OWN_START = re.compile(r"API Error\b|Error: [45]\d\d\b")
_TOOL_ERROR = re.compile(r"^\s{0,12}⎿\s{0,4}(?:error|fatal|warning)\b[: ](?!.{0,40}\"type\")", re.I)
_PASSED = re.compile(r"\s{0,12}(?:⎿\s{0,4})?[✓✔√]")  # a test or a step that went well
_JS_JOIN = re.compile(r"""(?:\\n)?['"]\s?\+\s{0,400}['"]?""")
_SPACES = re.compile(r" {2,}")
ESCAPE = re.compile(r"\\{1,16}(?:u([0-9a-fA-F]{4})|([nrt\"'/]))")
_BARE = {"n": "\n", "r": "\r", "t": "\t"}
# A string in the source of a program stays one line, whatever its content is.
_LITERAL_LINE = re.compile(
    r"""[^\w"'{\[]{0,12}(?:\d{1,6}[^\w"'{\[]{1,80})?(?:[\w.]{1,40}\s?=\s?)?(?:[rfbu]{0,2}["']|\{\s?"(?!(?:type|errors?|message|code|status|detail)"))""",
    re.I,
)
# A number and a gap begin each line of a file or a change that is shown. Removing padding would lose the gap.
_NUMBERED = re.compile(r"^([ ]{0,8}\d{1,6})\t|^([ ]{1,8}\d{1,6})[ ](?:[ ]|[+-][ ])", re.M)


def decode_text(value: object) -> str:
    """Return any value as text; bytes as UTF-8, with invalid ones replaced."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "replace")
    return "" if value is None else str(value)


def shorten(text: str) -> str:
    """Return the head and the tail of a huge text, or a shorter text as it is."""
    if len(text) <= HEAD + TAIL:
        return text
    return f"{text[:HEAD]}\n{text[-TAIL:]}"


def unescape(text: str) -> str:
    """Return text from inside JSON strings, however deep: `\\\\n`, `\\"`, `\\u2019`."""
    if "\\" not in text:
        return text

    return "\n".join(_unescape_line(line) for line in text.split("\n"))


def _unescape_line(line: str) -> str:
    is_literal = _LITERAL_LINE.match(line)

    def plain(match: re.Match[str]) -> str:
        if match[1]:
            code = int(match[1], 16)
            return chr(code) if not 0xD800 <= code <= 0xDFFF else ""
        bare = _BARE.get(match[2], match[2])
        return " " if is_literal and bare in "\n\r" else bare

    return ESCAPE.sub(plain, line)


def make_readable(text: str) -> str:
    """Return the readable text: one line per line, no colours, no borders, no padding, plain punctuation."""
    text = _ANSI.sub("", unescape(text)).replace("\r\n", "\n")
    text = _NUMBERED.sub(r"\1\2→", text).translate(ODD)
    lines: list[str] = []
    for raw in text.split("\n"):
        if _TOOL_ERROR.match(raw) or _PASSED.match(raw):
            continue
        line = _BOX.sub(" ", raw).strip(" |")
        bare = _SPACES.sub(" ", _EDGE_LEFT.sub("", line))
        if _BULLET.match(raw) and not _OWN_START.match(bare):
            bare = SOFT + bare
        if lines and bare and _continues(lines[-1], line, bare):
            lines[-1] = f"{lines[-1]}{WRAP}{bare}"
        else:
            lines.append(bare)
    return _JS_JOIN.sub(" ", "\n".join(lines))


def _continues(previous: str, line: str, bare: str) -> bool:
    """Return whether a line is the rest of a wrapped one: it begins in the middle of a sentence."""
    return (
        bare[0] != SOFT
        and line[:1] == bare[:1]
        and bare[0].islower()
        and bool(previous)
        and previous[-1] not in ".!?:;)}]\"'`"
    )


def join_lines(text: str) -> str:
    """Return the text without its line breaks, for words that a narrow terminal broke in two."""
    return text.replace("\n", "").replace(WRAP, "")


LONGEST_REASON = 300
"""Characters. Enough for any sentence, and a row of a table can still show it."""
LONGEST_READ = 16_000
"""Characters of an error that are read. Its words are at the beginning."""
_DEEPEST = 4
"""JSON bodies within the messages of others: proxies wrap one around the other, rarely more than twice."""
_PATHS = (
    ("error", "message"), ("error", "data", "message"), ("data", "message"), ("message",), ("error",), ("detail",),
    ("error", "detail"), ("error_description",), ("msg",), ("title",), ("result",), ("reason",), ("error", "name"),
    ("error", "type"), ("errors",),
)  # fmt: skip
_BODY = re.compile(r"""\{\s{0,80}["']""")
_CUT_MESSAGE = re.compile(r'"(?:message|detail|error|msg)"\s{0,4}:\s{0,4}"((?:[^"\\]|\\.){3,2000})')
_CODES = re.compile(
    r"\x1b(?:\[[0-?]{0,32}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)?|.)|[\x00-\x08\x0e-\x1f\x7f-\x9f]"
)
_FIELD = re.compile(r'(?:message|error|detail|msg|result|text|reason): "(.{3,2000})"')
_LOGGED = re.compile(r'time(?:stamp)?=\S{1,40} level=\w{1,10} .{0,2000}?\berror(?:\.error)?="((?:[^"\\]|\\.){3,2000})')
_DEBRIS = re.compile(r"""[\s{}\[\](),:;"'\\]""")
_WORD = re.compile(r"[^\W\d_]{2}")
_STACK = re.compile(r"\s{1,12}at |\s{0,12}File \"|Traceback|\s{0,12}\^")
_ERROR = re.compile(
    r"error|fail|fatal|exception|panic|abort|denied|refused|cannot|can't|could not|couldn't|unable|invalid|not found"
    r"|no such|missing|unknown|unexpected|issue with",
    re.I,
)


def reason_line(text: str | None) -> str | None:
    """Return the words of an error as one bounded line: of a JSON body its message, and None if there are no words."""
    if not text:
        return None
    plain = " ".join(_CODES.sub("", _without_json(text[:LONGEST_READ], 0)).split())
    if field := _FIELD.fullmatch(plain) or _LOGGED.match(plain):
        plain = field[1]
    if not _WORD.search(plain):
        return None
    return plain if len(plain) <= LONGEST_REASON else f"{plain[: LONGEST_REASON - 1].rstrip()}…"


def last_words(*texts: list[str]) -> str | None:
    """Return the line that best says what went wrong: the last error at the end of a text, else the last words."""
    said = [
        [line for line in text if line.strip() and not _STACK.match(line) and not _is_debris(line)] for text in texts
    ]
    errors = [line for text in said for line in reversed(text) if _ERROR.search(line)]
    others = [line for text in said for line in reversed(text)]
    return next((found for line in (*errors, *others) if (found := reason_line(line)) is not None), None)


def _is_debris(line: str) -> bool:
    """Return whether a line is part of some data: more brackets and quotes than a sentence has."""
    bare = line.strip()
    is_whole = bare.startswith("{") and bare.endswith("}")
    return not is_whole and len(_DEBRIS.findall(bare)) - bare.count(" ") > len(bare) / 5


def _without_json(text: str, depth: int) -> str:
    """Return the text with its JSON body replaced by the message in it. What follows the body is dropped."""
    start = _BODY.search(text)
    if start is None or depth >= _DEEPEST:
        return text
    head = text[: start.start()]
    for document in find_documents(text):
        message = _message_in(document)
        if message is not None:
            return f"{head} {_without_json(message, depth + 1)}" if depth == 0 else _without_json(message, depth + 1)
    if cut := _CUT_MESSAGE.search(text, start.start()):
        return f"{head} {_without_json(_unquoted(cut[1]), depth + 1)}"
    return head


def _unquoted(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text


def _message_in(document: object) -> str | None:
    for path in _PATHS:
        found = text_at(document, *path)
        if found is not None and _WORD.search(found):
            return found
    errors = document.get("errors") if isinstance(document, dict) else None
    if isinstance(errors, list):
        return next((message for error in errors if (message := _error_in_list(error))), None)
    return None


def _error_in_list(error: object) -> str | None:
    return error if isinstance(error, str) else _message_in(error)
