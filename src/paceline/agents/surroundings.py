"""What a CLI would find when it starts: its environment, folder, arguments and configuration files.

Here: reading files that a person wrote for another program, without ever failing. Never here: what a key in such a
file means (one module per CLI), or the value of any secret in a message.
"""

import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from paceline.detect.json_objects import items_of, member

SET_PERMISSIONS = 'set permissions = "edit" in the plan'
"""What lets an unattended session change files."""
BILLS = "would bill this key"
KeysOf = Callable[[object], Iterable[tuple[str, object]]]
"""Returns where the entry of a model provider can have a key, and what stands there."""
MOST_BYTES = 64 << 20
"""Claude Code keeps its history of projects in one file, which grows to some megabytes; this is far beyond it."""
_KEY_HEADERS = frozenset({"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key"})
"""The headers in which providers take a key. Others, such as a name of the caller, bill nothing."""
_OFF = frozenset({"", "0", "false", "no", "off"})
_JSON_EXTRAS = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.S)
_TRAILING_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])', re.S)
_DOTENV_LINE = re.compile(
    r"""^[ \t]*(?:export[ \t]+)?([\w.-]+)[ \t]*(?:=|:[ \t])[ \t]*"""
    r"""('(?:\\'|[^'])*'|"(?:\\"|[^"])*"|`(?:\\`|[^`])*`|[^#\r\n]*)""",
    re.M,
)


class BillingFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a CLI's own configuration that would bill a key, or a file that hides whether it would."""

    file: str
    key: str
    """The key in the file, such as `env.ANTHROPIC_API_KEY`. Never its value."""
    meaning: str
    holds: bool = True
    """Whether a session must not start. False for a file that the CLI cannot read either."""

    @property
    def text(self) -> str:
        """The finding as a sentence."""
        return f"{self.file}: {self.key} {self.meaning}" if self.key else f"{self.file} {self.meaning}"


class UnreadableFile(Exception):
    """A file that exists, but whose content is not known."""

    def __init__(self, reason: str, *, holds: bool) -> None:
        super().__init__(reason)
        self.holds = holds


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """Where a session would start. `own_key` is the key of its metered account, which may stand in a file."""

    env: Mapping[str, str]
    cwd: str
    argv: tuple[str, ...] = ()
    model: str | None = None
    own_key: str | None = None
    is_metered: bool = False
    """Whether the session belongs to a metered account: then only a key other than `own_key` is a finding."""
    root: str = "/"
    """The root of the file system; a test has its own."""

    @property
    def home(self) -> Path:
        return Path(self.env.get("HOME") or os.path.expanduser("~"))

    def folder(self, variable: str, *default: str) -> Path:
        """Return the folder that the variable names, else one in the home folder."""
        named = self.env.get(variable)
        return Path(self.cwd, named) if named else self.home.joinpath(*default)

    def system(self, *parts: str) -> Path:
        return Path(self.root).joinpath(*parts)

    def upward(self) -> list[Path]:
        """Return the working directory and the folders above it."""
        start = Path(os.path.abspath(self.cwd))
        return [start, *start.parents]

    def is_foreign(self, value: object) -> bool:
        """Return whether a value is a key, and not the account's own."""
        return isinstance(value, str) and bool(value.strip()) and value.strip() != self.own_key

    def keys_in(
        self, file: str, variables: object, names: Iterable[str], *, prefix: str = "", meaning: str = BILLS
    ) -> list[BillingFinding]:
        """Return those of the variables in a file that hold a key which is not the account's own."""
        found = [name for name in names if self.is_foreign(member(variables, name))]
        return [BillingFinding(file=file, key=prefix + name, meaning=meaning) for name in found]

    def keys_of_providers(
        self, file: str, place: str, providers: object, keys: KeysOf, used: str | None
    ) -> list[BillingFinding]:
        """Return the keys of the model providers in a file, of all of them unless it is known which is `used`."""
        return [
            BillingFinding(file=file, key=f"{place}.{name}.{key}", meaning=BILLS)
            for name, entry in items_of(providers)
            if used in (None, name)
            for key, value in keys(entry)
            if self.is_foreign(value)
        ]

    def provider(self, options: Sequence[str], defaults: Iterable[object]) -> str | None:
        """Return the provider of the model that would be used, if its name is `provider/model`.

        `options` name it in the arguments, `defaults` are those of the CLI's configuration.
        """
        texts = (each for each in (self.model, *self.options(*options), *defaults) if isinstance(each, str) and each)
        named = next(texts, "")
        return named.partition("/")[0] if "/" in named else None

    def options(self, *names: str) -> list[str]:
        """Return the values that the arguments give to an option, as `--name value` or `--name=value`."""
        found = []
        for at, argument in enumerate(self.argv):
            name, equals, value = argument.partition("=")
            if name in names and equals:
                found.append(value)
            elif argument in names and at + 1 < len(self.argv):
                found.append(self.argv[at + 1])
        return found


def keys_in_headers(place: str, headers: object) -> Iterator[tuple[str, str]]:
    """Yield the headers that carry a key, and the key."""
    for name, value in items_of(headers):
        if name.lower() in _KEY_HEADERS and isinstance(value, str):
            yield f"{place}.{name}", value.removeprefix("Bearer ")


def is_on(value: object) -> bool:
    """Return whether a switch is on, as CLIs read it: any value but an empty one, 0, false, no and off."""
    return str(value).strip().lower() not in _OFF if value is not None else False


def read_file(path: Path) -> str | None:
    """Return the text of a regular file, or None if there is none. Raise `UnreadableFile` if it cannot be read."""
    try:
        # A pipe would block, and reading it would take its content away from the CLI.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UnreadableFile(f"cannot be read ({error.strerror})", holds=False) from None
    status = os.fstat(handle)
    if stat.S_ISDIR(status.st_mode):
        os.close(handle)
        return None
    with open(handle, "rb") as file:
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableFile("is not a regular file, so nobody knows whether it bills a key", holds=True)
        if status.st_size > MOST_BYTES:
            raise UnreadableFile("is too large to inspect, so nobody knows whether it bills a key", holds=True)
        return file.read().decode("utf-8-sig", "replace")


def parse_json(text: str) -> object:
    """Parse JSON, with comments and trailing commas as most of these CLIs accept them."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        plain = _TRAILING_COMMA.sub(_keep_string, _JSON_EXTRAS.sub(_keep_string, text))
    try:
        return msgspec.json.decode(plain) if plain.strip() else {}
    except msgspec.DecodeError as error:
        raise UnreadableFile(
            f"is not valid JSON ({error}), so nobody knows whether it bills a key", holds=True
        ) from None


def _keep_string(found: re.Match[str]) -> str:
    return found[1] or ""


def parse_toml(text: str) -> object:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UnreadableFile(
            f"is not valid TOML ({error}), so nobody knows whether it bills a key", holds=True
        ) from None


def parse_dotenv(text: str) -> dict[str, str]:
    """Parse an `.env` file. Lines that set nothing are skipped."""
    return {name: value.strip().strip("'\"`") for name, value in _DOTENV_LINE.findall(text)}


Parsed = tuple[str, object]
"""A file as it is shown, and its content."""


def load(
    paths: Iterator[Path] | list[Path], parse: Callable[[str], object], found: list[BillingFinding]
) -> Iterator[Parsed]:
    """Yield the files that exist, parsed. A file whose content is not known becomes a finding."""
    for path in paths:
        try:
            text = read_file(path)
            if text is not None:
                yield str(path), parse(text)
        except UnreadableFile as error:
            found.append(BillingFinding(file=str(path), key="", meaning=str(error), holds=error.holds))


def read_content(path: Path, parse: Callable[[str], object]) -> object:
    """Return the parsed content of a file; None if there is none, or if it is not known."""
    return next((content for _, content in load([path], parse, [])), None)
