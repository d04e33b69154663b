"""Documents that people write, and the mistakes in them, each with its location and what is expected.

Here: reading text and TOML, locations, the list of mistakes, the nearest known name, and checking fields one by one.
Never here: the meaning of a field.
"""

import difflib
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

import msgspec

from paceline.errors import InvalidInput, MistakesFound

KeyPath = tuple[str | int, ...]
"""Keys, with the number of the element for a table in an array of tables."""
MOST_SHOWN = 50
"""A file with ten thousand mistakes has one cause; the first screenful shows it."""
_LONGEST_SHOWN = 60
"""Characters of a value in a message: enough to recognise it on one line."""
_LINE_SUFFIX = re.compile(r" \(at line (\d+), column \d+\)$")

Check = Callable[[object], object]
"""Returns the value in the form that the code uses, or raises `InvalidInput` with what is expected."""


class PrivateValue(InvalidInput):
    """An `InvalidInput` of a check whose value may be a secret and is not shown."""


class Location(msgspec.Struct, frozen=True):
    """A location: `file:line`, or the file alone if the line is not known."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


class Mistakes:
    """The mistakes found so far."""

    def __init__(self) -> None:
        self._shown: list[str] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, location: object, message: str) -> None:
        """Add a mistake. The location is converted to text only if the mistake is shown."""
        self._count += 1
        if self._count <= MOST_SHOWN:
            self._shown.append(f"{location}: {message}")

    def raise_as(self, kind: type[MistakesFound]) -> None:
        """Raise an error with all mistakes, if there are any."""
        if self._count:
            more = [f"... and {self._count - MOST_SHOWN} more"] if self._count > MOST_SHOWN else []
            raise kind(*self._shown, *more)


class Document:
    """Nested tables, and the mistakes in them. `source` names where the values come from."""

    def __init__(self, source: str, values: Mapping[str, object], mistakes: Mistakes | None = None) -> None:
        self.source = source
        self.values = values
        self.mistakes = Mistakes() if mistakes is None else mistakes

    def locate(self, path: KeyPath) -> Location:
        """Return the location of a key. It may take time: `at` puts it off until somebody reads it."""
        return Location(self.source)

    def at(self, path: KeyPath) -> "KeyLocation":
        return KeyLocation(self, path)

    def refuse(self, path: KeyPath, message: str) -> None:
        self.mistakes.add(self.at(path), message)

    def refuse_value(self, path: KeyPath, value: object, wanted: str) -> None:
        self.refuse(path, f"{path_text(path)} = {shown(value)}: {wanted}")

    def refuse_key(self, path: KeyPath, known: Iterable[str]) -> None:
        """Add a mistake for an unknown key: nothing is ignored silently."""
        known = list(known)
        hint = did_you_mean(str(path[-1]), known) or f"; there are {', '.join(known)}"
        self.refuse(path, f"unknown key {path_text(path)}{hint}")

    def table(self, path: KeyPath, value: object) -> Mapping[str, object]:
        """Return the value if it is a table; otherwise add a mistake and return an empty one."""
        if isinstance(value, Mapping):
            return value
        name = path_text(path)
        self.refuse(path, f"{name} must be a table; write [{name}] above its keys")
        return {}

    def fields(self, path: KeyPath, values: Mapping[str, object], checks: Mapping[str, Check]) -> dict[str, object]:
        """Return the valid fields in the form that the code uses. Invalid and unknown fields become mistakes."""
        fields: dict[str, object] = {}
        for key, value in values.items():
            if key not in checks:
                self.refuse_key((*path, key), checks)
                continue
            try:
                fields[key] = checks[key](value)
            except PrivateValue as error:
                self.refuse((*path, key), f"{path_text((*path, key))} {error}")
            except InvalidInput as error:
                self.refuse_value((*path, key), value, str(error))
        return fields


class TomlDocument(Document):
    """A TOML file. Lines are computed only when a mistake is shown."""

    def __init__(self, source: str, values: Mapping[str, object], mistakes: Mistakes, text: str) -> None:
        super().__init__(source, values, mistakes)
        self._text = text

    @cached_property
    def _lines(self) -> dict[KeyPath, int]:
        return toml_lines(self._text)

    def locate(self, path: KeyPath) -> Location:
        """Return the location of the key, or of the innermost table or key around it that has a line."""
        known = (self._lines.get(path[:length]) for length in range(len(path), 0, -1))
        return Location(self.source, next((line for line in known if line is not None), None))


class KeyLocation(msgspec.Struct, frozen=True):
    """The location of a key, computed only when it is shown."""

    document: Document
    path: KeyPath

    def __str__(self) -> str:
        return str(self.document.locate(self.path))


def read_text(path: Path, mistakes: Mistakes, named_at: object = None) -> str | None:
    """Return the content of a text file, or add a mistake at `named_at` (default: the file) and return None."""
    named_at = path if named_at is None else named_at
    if not os.path.isfile(path):  # unlike Path.is_file it never raises; reading a pipe may never end
        mistakes.add(named_at, _no_such_file(path))
        return None
    try:
        content = path.read_bytes()
    except OSError as error:
        mistakes.add(named_at, f"cannot read {path}: {error.strerror or error}")
        return None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        bad = Location(str(path), content.count(b"\n", 0, error.start) + 1)
        mistakes.add(bad, "this is not UTF-8 text; save the file as UTF-8")
        return None


def _no_such_file(path: Path) -> str:
    if os.path.isdir(path):
        return f"{path} is a folder; name a file"
    try:
        around = os.listdir(path.parent)
    except (OSError, ValueError):
        around = []
    return f"there is no file {path}{did_you_mean(path.name, around)}"


def read_toml(path: Path, mistakes: Mistakes) -> TomlDocument | None:
    """Return a parsed TOML file, or add a mistake and return None."""
    text = read_text(path, mistakes)
    if text is None:
        return None
    try:
        return TomlDocument(str(path), tomllib.loads(text), mistakes, text)
    except RecursionError:
        mistakes.add(path, "cannot read this TOML: it is nested too deeply")
    except ValueError as error:  # also for an integer with more digits than Python accepts
        message = str(error)
        found = _LINE_SUFFIX.search(message)
        line = int(found[1]) if found else None
        mistakes.add(Location(str(path), line), f"not TOML: {_LINE_SUFFIX.sub('', message)}")
    return None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean "…"?`, or nothing if no known name is similar."""
    name = nearest(word, known)
    return "" if name is None else f'; did you mean "{name}"?'


def nearest(word: str, known: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """Return the known name that is most similar to `word`, or None."""
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=likeness)
    return by_lower[near[0]] if near else None


def path_text(path: KeyPath) -> str:
    """Return the path as people write it: `accounts.max-1.env`, `limits."anthropic/*"`, `unit[3].id` (from 1)."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part + 1}]"
        else:
            plain = re.fullmatch(r"[A-Za-z0-9_-]+", part) is not None
            text += ("." if text else "") + (part if plain else shown(part))
    return text


def shown(value: object) -> str:
    """Return the value as in the file, shortened. Tables and users in URLs are left out: they may be secret."""
    if isinstance(value, Mapping):
        return "{...}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        value = re.sub(r"(://)[^/@\s]*@", r"\1...@", value)
        return cut(json.dumps(value, ensure_ascii=False))
    try:
        return cut(str(value))
    except (ValueError, RecursionError):  # integers with more digits than Python prints, deep lists
        return "..."


def cut(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."


# -- lines of keys: the parser of the standard library does not report them ------------------------

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


def toml_lines(text: str) -> dict[KeyPath, int]:
    """Return the line of each table header and key outside inline tables; the first one if there are several."""
    lines: dict[KeyPath, int] = {}
    counted_to, line = 0, 1
    for position, path in _statements(text):
        line += text.count("\n", counted_to, position)
        counted_to = position
        for length in range(1, len(path) + 1):
            lines.setdefault(path[:length], line)
    return lines


def _statements(text: str) -> Iterator[tuple[int, KeyPath]]:
    """Yield the position of each header and each key, and its whole path."""
    arrays: dict[KeyPath, int] = {}
    table: KeyPath = ()
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


def _open_table(keys: tuple[str, ...], arrays: dict[KeyPath, int], *, is_array: bool) -> KeyPath:
    path: KeyPath = ()
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
