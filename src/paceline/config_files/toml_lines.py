"""The lines of the keys of a TOML file, which the parser of the standard library does not report.

The text was parsed before, so it is valid TOML. At syntax that it does not know this module stops: no line is better
than a wrong one. Never here: the meaning of values.
"""

import re
import tomllib
from collections.abc import Iterator

Path = tuple[str | int, ...]
"""Keys, with the number of the element for a table in an array of tables."""

_BETWEEN = re.compile(r"(?:[ \t\r\n]++|#[^\n]*+)*+")
_STRING = (
    r'"""(?:[^"\\]++|\\.|"{1,2}(?!"))*+"{3,5}'
    r"|'''(?:[^']++|'{1,2}(?!'))*+'{3,5}"
    r'|"(?:[^"\\\n]++|\\.)*+"'
    r"|'[^'\n]*+'"
)
_KEY_PART = re.compile(r'[ \t]*+([A-Za-z0-9_-]++|"(?:[^"\\\n]++|\\.)*+"|' + r"'[^'\n]*+')[ \t]*+(\.?)")
_VALUE_PIECE = re.compile(
    rf"(?:{_STRING})|(?P<comment>#[^\n]*+)|(?P<open>[\[{{])|(?P<close>[\]}}])|(?P<end>\n)|[^\"'#\[\]{{}}\n]++", re.S
)


def toml_lines(text: str) -> dict[Path, int]:
    """Return the line of each table header and key outside inline tables; the first one if there are several."""
    lines: dict[Path, int] = {}
    counted_to, line = 0, 1
    for position, path in _statements(text):
        line += text.count("\n", counted_to, position)
        counted_to = position
        for length in range(1, len(path) + 1):
            lines.setdefault(path[:length], line)
    return lines


def _statements(text: str) -> Iterator[tuple[int, Path]]:
    """Yield the position of each header and each key, and its whole path."""
    arrays: dict[Path, int] = {}
    table: Path = ()
    position = _after(_BETWEEN, text, 0)
    while position < len(text):
        brackets = 2 if text.startswith("[[", position) else 1 if text[position] == "[" else 0
        keys, after = _read_key(text, position + brackets)
        if not keys:
            return
        if brackets:
            table = _open_table(keys, arrays, is_array=brackets == 2)
            yield position, table
            after += brackets
        else:
            yield position, table + keys
            after = _skip_value(text, after + 1)
        position = _after(_BETWEEN, text, after)


def _open_table(keys: tuple[str, ...], arrays: dict[Path, int], *, is_array: bool) -> Path:
    path: Path = ()
    for number, key in enumerate(keys, 1):
        path += (key,)
        if is_array and number == len(keys):
            arrays[path] = arrays.get(path, 0) + 1
        if path in arrays:
            path += (arrays[path] - 1,)
    return path


def _read_key(text: str, position: int) -> tuple[tuple[str, ...], int]:
    """Return a dotted key and its end; an empty key if there is none."""
    keys: list[str] = []
    while part := _KEY_PART.match(text, position):
        keys.append(_unquoted(part[1]))
        position = part.end()
        if not part[2]:
            return tuple(keys), position
    return (), position


def _unquoted(key: str) -> str:
    return next(iter(tomllib.loads(f"{key} = 0"))) if key[0] in "\"'" else key


def _skip_value(text: str, position: int) -> int:
    depth = 0
    while piece := _VALUE_PIECE.match(text, position):
        position = piece.end()
        if piece.lastgroup == "open":
            depth += 1
        elif piece.lastgroup == "close":
            depth -= 1
        elif piece.lastgroup == "end" and depth == 0:
            return position
    return len(text)


def _after(pattern: re.Pattern[str], text: str, position: int) -> int:
    found = pattern.match(text, position)
    return found.end() if found else position
