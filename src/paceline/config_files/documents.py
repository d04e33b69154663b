"""Documents that people write, and the mistakes in them, each with its location and what is expected.

Here: reading text and TOML, locations, the list of mistakes, the nearest known name, and checking fields one by one.
Never here: the meaning of a field.
"""

import difflib
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path

import msgspec

from paceline.config_files.toml_lines import Path as KeyPath
from paceline.config_files.toml_lines import toml_lines
from paceline.errors import InvalidInput, MistakesFound

MOST_SHOWN = 50
"""A file with ten thousand mistakes has one cause; the first screenful shows it."""
_LONGEST_SHOWN = 60
"""Characters of a value in a message: enough to recognise it on one line."""
_LINE_SUFFIX = re.compile(r" \(at line (\d+), column \d+\)$")

Check = Callable[[object], object]
"""Returns the value in the form that the code uses, or raises `InvalidInput` with what is expected."""


class PrivateValue(InvalidInput):
    """An `InvalidInput` of a check whose value may be a secret and is not shown."""


class Place(msgspec.Struct, frozen=True):
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

    def add(self, place: object, message: str) -> None:
        """Add a mistake. `place` is converted to text only if the mistake is shown."""
        self._count += 1
        if self._count <= MOST_SHOWN:
            self._shown.append(f"{place}: {message}")

    def raise_as(self, kind: type[MistakesFound]) -> None:
        """Raise an error with all mistakes, if there are any."""
        if self._count:
            more = [f"... and {self._count - MOST_SHOWN} more"] if self._count > MOST_SHOWN else []
            raise kind(*self._shown, *more)


class Document:
    """Nested tables, and the location of each key. `source` names where the values come from."""

    def __init__(self, source: str, values: Mapping[str, object]) -> None:
        self.source = source
        self.values = values

    def place(self, path: KeyPath) -> Place:
        return Place(self.source)


class TomlDocument(Document):
    """A TOML file. Lines are computed only when a mistake is shown."""

    def __init__(self, source: str, values: Mapping[str, object], text: str) -> None:
        super().__init__(source, values)
        self._text = text

    @cached_property
    def _lines(self) -> dict[KeyPath, int]:
        return toml_lines(self._text)

    def place(self, path: KeyPath) -> Place:
        """Return the location of the key, or of the innermost table or key around it that has a line."""
        known = (self._lines.get(path[:length]) for length in range(len(path), 0, -1))
        return Place(self.source, next((line for line in known if line is not None), None))


class KeyPlace(msgspec.Struct, frozen=True):
    """The location of a key, computed only when it is shown."""

    document: Document
    path: KeyPath

    def __str__(self) -> str:
        return str(self.document.place(self.path))


def read_text(path: Path, mistakes: Mistakes, place: object = None) -> str | None:
    """Return the content of a text file, or add a mistake at `place` (default: the file) and return None."""
    place = path if place is None else place
    if not os.path.isfile(path):  # unlike Path.is_file it never raises; reading a pipe may never end
        mistakes.add(place, _no_such_file(path))
        return None
    try:
        content = path.read_bytes()
    except OSError as error:
        mistakes.add(place, f"cannot read {path}: {error.strerror or error}")
        return None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        bad = Place(str(path), content.count(b"\n", 0, error.start) + 1)
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
        return TomlDocument(str(path), tomllib.loads(text), text)
    except RecursionError:
        mistakes.add(path, "cannot read this TOML: it is nested too deeply")
    except ValueError as error:  # also for an integer with more digits than Python accepts
        message = str(error)
        found = _LINE_SUFFIX.search(message)
        line = int(found[1]) if found else None
        mistakes.add(Place(str(path), line), f"not TOML: {_LINE_SUFFIX.sub('', message)}")
    return None


def table_at(document: Document, path: KeyPath, value: object, mistakes: Mistakes) -> Mapping[str, object]:
    """Return the value if it is a table; otherwise add a mistake and return an empty one."""
    if isinstance(value, Mapping):
        return value
    name = path_text(path)
    mistakes.add(KeyPlace(document, path), f"{name} must be a table; write [{name}] above its keys")
    return {}


def checked_fields(
    document: Document, path: KeyPath, values: Mapping[str, object], checks: Mapping[str, Check], mistakes: Mistakes
) -> dict[str, object]:
    """Return the valid fields in the form that the code uses. Invalid and unknown fields become mistakes."""
    fields: dict[str, object] = {}
    for key, value in values.items():
        check = checks.get(key)
        if check is None:
            refuse_key(document, (*path, key), checks, mistakes)
            continue
        try:
            fields[key] = check(value)
        except PrivateValue as error:
            mistakes.add(KeyPlace(document, (*path, key)), f"{path_text((*path, key))} {error}")
        except InvalidInput as error:
            refuse_value(document, (*path, key), value, str(error), mistakes)
    return fields


def refuse_key(document: Document, path: KeyPath, known: Iterable[str], mistakes: Mistakes) -> None:
    """Add a mistake for an unknown key: nothing is ignored silently."""
    known = list(known)
    hint = did_you_mean(str(path[-1]), known) or f"; there are {', '.join(known)}"
    mistakes.add(KeyPlace(document, path), f"unknown key {path_text(path)}{hint}")


def refuse_value(document: Document, path: KeyPath, value: object, wanted: str, mistakes: Mistakes) -> None:
    mistakes.add(KeyPlace(document, path), f"{path_text(path)} = {shown(value)}: {wanted}")


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
