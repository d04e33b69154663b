"""An error in one line for people, out of JSON bodies, dumps and wrapped text.

Here: finding the words in an error. Never here: what they mean.
"""

import json
import re

from paceline.detect.parsing.json_objects import find_documents, text_at

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
