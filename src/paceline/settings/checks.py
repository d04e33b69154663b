"""Documents that people write, and the mistakes in them, each with its location and what is expected.

Here: reading text and TOML, locations, the list of mistakes, the nearest known name, and the check of single values,
which it returns in the form that the code uses. A check raises `InvalidInput` with what is expected. The document adds
the location, the key and the value. Never here: the meaning of a field.
"""

import contextlib
import difflib
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import msgspec

from paceline.core.values.settings import AUTO
from paceline.core.values.validation import LARGEST_LIMIT, check_seconds
from paceline.errors import InvalidDuration, InvalidInput, InvalidScope, MistakesFound

KeyPath = tuple[str | int, ...]
"""Keys, with the number of the element for a table in an array of tables."""
NO_NAMES: Mapping[KeyPath, str] = {}
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
    """Nested tables, and the mistakes in them. `source` names where the values come from.

    `toml` is their text, if they come from a file. `names` says where keys come from that have a name of their own.
    """

    def __init__(
        self,
        source: str,
        values: Mapping[str, object],
        mistakes: Mistakes | None = None,
        *,
        toml: str = "",
        names: Mapping[KeyPath, str] = NO_NAMES,
    ) -> None:
        self.source = source
        self.values = values
        self.mistakes = Mistakes() if mistakes is None else mistakes
        self._toml = toml
        self._names = names

    @cached_property
    def _lines(self) -> dict[KeyPath, int]:
        return toml_lines(self._toml)

    def locate(self, path: KeyPath) -> Location:
        """Return the location of the key, or of the innermost table or key around it that has one.

        It may take time: `at` puts it off until somebody reads it.
        """
        for length in range(len(path), 0, -1):
            if (name := self._names.get(path[:length])) is not None:
                return Location(name)
            if (line := self._lines.get(path[:length])) is not None:
                return Location(self.source, line)
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


def read_toml(path: Path, mistakes: Mistakes) -> Document | None:
    """Return a parsed TOML file, or add a mistake and return None."""
    text = read_text(path, mistakes)
    if text is None:
        return None
    try:
        return Document(str(path), tomllib.loads(text), mistakes, toml=text)
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


# -- checks of single values -------------------------------------------------------------------------

UNLIMITED = "none"
_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_VARIABLE = re.compile(r".*(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD)", re.I)
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,3})?)\s*([kKMGT]i?B)")
_SIZE_UNITS = {
    f"{letter}{i}B": base ** (power + 1) for i, base in (("", 1000), ("I", 1024)) for power, letter in enumerate("KMGT")
}
_LARGEST_SIZE = 10**18
_LARGEST_PRICE = 100_000
_DOLLARS = re.compile(r"\$([0-9]{1,9}(?:\.[0-9]{1,6})?)")
LARGEST_BUDGET = 1e9
"""Dollars. More is surely a typing error."""
_OTHER_HOSTS = re.compile(r"^(\w+://(?:[^/?#]*@)?[^/?#,@]*),[^/?#@]*")
_STORE_SCHEMES = ("sqlite", "postgresql", "postgres")


def limit(value: object) -> int | None:
    """Check a limit: a whole number >= 1, or None for unlimited."""
    if value == UNLIMITED:
        return None
    if type(value) is not int or not 1 <= value <= LARGEST_LIMIT:  # true is no limit
        raise InvalidInput(f'must be a whole number from 1 to {LARGEST_LIMIT}, without quotes, or "none" for unlimited')
    return value


def whole_number(least: int, most: int) -> Callable[[object], int]:
    def check(value: object) -> int:
        if type(value) is not int or not least <= value <= most:
            raise InvalidInput(f"must be a whole number from {least} to {most}, without quotes")
        return value

    return check


def number(wanted: str, is_allowed: Callable[[float], bool]) -> Callable[[object], float]:
    """Return a check of a number that may have a fraction. `wanted` is what it must be."""

    def check(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not is_allowed(value):
            raise InvalidInput(f"must be {wanted}")
        return float(value)

    return check


share = number("a share from 0 to below 1, such as 0.2", lambda value: 0 <= value < 1)
price = number(
    f"dollars per million tokens from 0 to {_LARGEST_PRICE}, without quotes, such as 3.0",
    lambda value: 0 <= value <= _LARGEST_PRICE,
)


def duration(value: object) -> float:
    """Check a duration. Zero is allowed: it turns the feature off."""
    return _duration(value, above_zero=False)


def span(value: object) -> float:
    """Check a duration that must not be zero."""
    return _duration(value, above_zero=True)


def _or_word(check: Check, word: str, meaning: object, use: str) -> Check:
    """Return a check of values that pass another check, and of one word. `use` is what the word is for."""

    def checked(value: object) -> object:
        if value == word:
            return meaning
        try:
            return check(value)
        except InvalidInput as error:
            raise InvalidInput(f'{error}; or "{word}" {use}') from None

    return checked


cooldown = _or_word(duration, AUTO, AUTO, "to learn it from usage readings")
span_or_none = _or_word(span, UNLIMITED, None, "to keep it forever")


def disk_size(value: object) -> int | None:
    """Check a size on disk: "500MB", "5GB", a number of bytes, or None for unlimited."""
    if value == UNLIMITED:
        return None
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    size = int(float(found[1]) * _SIZE_UNITS[found[2].upper()]) if found else value
    if type(size) is not int or not 0 < size <= _LARGEST_SIZE:  # true is no size
        raise InvalidInput(f'must be a size such as "500MB" or "5GB", or "{UNLIMITED}" for unlimited')
    return size


def _duration(value: object, *, above_zero: bool) -> float:
    try:
        return duration_seconds(value, above_zero=above_zero)
    except InvalidDuration:
        least = "longer than 0, ten years at most" if above_zero else "0 or longer, ten years at most"
        raise InvalidInput(f'must be a duration {least}: "350ms", "1s", "30m", "5h", or a number of seconds') from None


def budget_dollars(value: object) -> float:
    """Check an amount of dollars above zero."""
    found = _DOLLARS.fullmatch(value.strip().replace(",", "")) if isinstance(value, str) else None
    if found is None or not 0 < float(found[1]) <= LARGEST_BUDGET:
        raise InvalidInput('must be dollars above 0 in quotes, such as "$30" or "$2.50"')
    return float(found[1])


def day(value: object) -> float:
    """Check a day, which begins at 00:00 UTC, or a time with its zone. Returns a Unix time."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = date.fromisoformat(value)
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            return value.timestamp()
    elif isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
    raise InvalidInput("must be a day, such as 2027-03-01, or a time with its zone, such as 2027-03-01T08:00:00Z")


def text(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise InvalidInput("must be text in quotes that is not empty")
    return value


def text_list(value: object, wanted: str, *, may_be_empty: bool = False) -> tuple[str, ...]:
    """Check a list of texts. `wanted` is what it must be."""
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise InvalidInput(wanted)
    if not (value or may_be_empty):
        raise InvalidInput(wanted)
    if any("\0" in each for each in value):
        raise InvalidInput("must not contain a NUL character")
    return tuple(value)


def texts(value: object) -> tuple[str, ...]:
    return text_list(value, 'must be a list of texts, such as ["a", "b"]')


def matching(pattern: str, wanted: str) -> Callable[[object], str]:
    """Return a check of a text that the pattern matches as a whole. `wanted` is what it must be."""
    compiled = re.compile(pattern)

    def check(value: object) -> str:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            raise InvalidInput(f"must be {wanted}")
        return value

    return check


def host_names(value: object) -> tuple[str, ...]:
    """Check a list of host names, each with or without a port. A variable separates them by commas."""
    values = value.split(",") if isinstance(value, str) else value
    names = text_list(values, 'must be a list of names, such as ["paceline.example.com"]', may_be_empty=True)
    names = tuple(name.strip() for name in names)
    if not all(_HOST.fullmatch(name) for name in names):
        raise InvalidInput('must be host names, such as "paceline.example.com" or "10.0.0.5:7433"')
    return names


def truth(value: object) -> bool:
    """Check true or false. A variable has them as text."""
    if value in ("true", "false"):
        return value == "true"
    if not isinstance(value, bool):
        raise InvalidInput("must be true or false, without quotes")
    return value


def one_of(*allowed: str) -> Callable[[object], str]:
    def check(value: object) -> str:
        if not isinstance(value, str) or value not in allowed:
            hint = did_you_mean(value, allowed) if isinstance(value, str) else ""
            raise InvalidInput(f"must be one of {', '.join(allowed)}{hint}")
        return value

    return check


def anything(value: object) -> object:
    """Accept any value: it is checked later, together with related fields."""
    return value


def variable_name(value: object) -> str:
    if not isinstance(value, str) or not _VARIABLE.fullmatch(value):
        raise PrivateValue("must name an environment variable, such as ANTHROPIC_API_KEY; do not write the key itself")
    return value


def names_a_secret(name: str) -> bool:
    """Return whether the name of a variable looks like that of a secret."""
    return _SECRET_VARIABLE.fullmatch(name) is not None


def variables(value: object, example: str, refuse_secret: Callable[[str, str], None]) -> dict[str, str]:
    """Check an `env` table. `refuse_secret` raises for a variable that is a secret: many people can read the file."""
    if not isinstance(value, Mapping):
        raise InvalidInput(f"must be a table of variables, such as {example}")
    for name, content in value.items():
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            raise InvalidInput(f"{name!r:.60} is not a valid name of a variable")
        if not isinstance(content, str) or "\0" in content:
            raise InvalidInput(f"{name} must be text in quotes")
        refuse_secret(name, content)
    return dict(value)


def account_variables(value: object) -> dict[str, str]:
    def refuse_secret(name: str, _: str) -> None:
        if names_a_secret(name):
            raise PrivateValue(
                f"{name} looks like a secret, which must not be in the file; set it outside and name it in key_env"
            )

    return variables(value, '{ CLAUDE_CONFIG_DIR = "~/.claude-max-1" }', refuse_secret)


def web_url(value: object) -> str:
    """Check an HTTP address without a password in it."""
    parts = _split_url(value)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput("must be an address such as https://api.example.com")
    if parts.username or parts.password:
        raise PrivateValue("contains a user or password, which must not be in the file; name a variable in key_env")
    return str(value)


def store_url(value: object) -> str:
    """Check the address of a store. PostgreSQL allows several hosts, of which one must answer."""
    parts = _split_url(_with_one_host(value))
    if parts is None or parts.scheme not in _STORE_SCHEMES or not (parts.netloc or parts.path.strip("/")):
        raise InvalidInput("must be sqlite:///PATH or postgresql://HOST/DATABASE")
    if parts.scheme == "sqlite" and (parts.netloc or not str(value).startswith("sqlite:///")):
        raise InvalidInput("must have three slashes before the path: sqlite:///PATH (four if the path is absolute)")
    return str(value)


def without_password(address: str) -> str:
    """Return the address of a server without the password that it contains."""
    plain = re.sub(r"//([^/@:]*):[^/]*@", r"//\1@", address)
    return re.sub(r"([?&])password=[^&]*&?", r"\1", plain).rstrip("?&")


def has_password(url: str) -> bool:
    parts = _split_url(_with_one_host(url))
    return parts is not None and (bool(parts.password) or "password=" in parts.query)


def _with_one_host(value: object) -> object:
    """Return the address with only the first of its hosts: `urlsplit` reads no others."""
    return _OTHER_HOSTS.sub(r"\1", value) if isinstance(value, str) else value


def _split_url(value: object) -> SplitResult | None:
    if not isinstance(value, str) or any(char <= " " or char == "\x7f" for char in value):
        return None
    try:
        parts = urlsplit(value)
        _ = parts.hostname, parts.port, parts.password  # read here, because they may raise
    except ValueError:
        return None
    return parts


def scope_check(check: Callable[[str], object]) -> Callable[[object], str]:
    """Return a check for a name that must be valid in a scope; `check` builds that scope."""

    def checked(value: object) -> str:
        name = text(value)
        try:
            check(name)
        except InvalidScope as error:
            raise InvalidInput(str(error)) from None
        return name

    return checked


# -- durations -------------------------------------------------------------------------------------

_DURATION = re.compile(
    r"(?=\d)" + "".join(rf"(?:(\d+(?:\.\d+)?)\s*{unit}\s*)?" for unit in ("d", "h", "m(?!s)", "s", "ms")), re.A
)
_LARGEST_FIRST = (86400.0, 3600.0, 60.0, 1.0)
_LONGEST_TEXT = 64


def duration_seconds(value: object, name: str = "duration", *, above_zero: bool = False) -> float:
    """Return seconds. A bare number means seconds; text needs a unit, so that `"30"` is not ambiguous."""
    if isinstance(value, str):
        value = _seconds(value, name)
    return check_seconds(value, name, above_zero=above_zero)


def _seconds(text: str, name: str) -> float:
    found = _DURATION.fullmatch(text.strip()) if len(text) <= _LONGEST_TEXT else None
    if found is None:
        raise InvalidDuration(f"{name} must be a duration such as 350ms, 1s, 30m, 5h or 1h30m; got {text!r:.80}")
    *whole, milliseconds = (float(part or 0) for part in found.groups())
    # Divided, not multiplied by 0.001, so that 350ms is exactly 0.35.
    return sum(count * size for count, size in zip(whole, _LARGEST_FIRST, strict=True)) + milliseconds / 1000
