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
Parse = Callable[[str], object]
Parsed = tuple[str, object]
"""A file as it is shown, and its content."""
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
    found: list[BillingFinding] = []
    """What its inspection has reported so far."""

    @property
    def home(self) -> Path:
        return Path(self.env.get("HOME") or os.path.expanduser("~"))

    @property
    def repository(self) -> Path:
        """The folder of the git repository, else the working directory."""
        return next((folder for folder in self.upward() if (folder / ".git").exists()), Path(self.cwd))

    def folder(self, variable: str, *default: str | Path) -> Path:
        """Return the folder or file that the variable names, else one in the home folder or at a path of its own."""
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

    def load(self, paths: Iterable[Path], parse: Parse) -> Iterator[Parsed]:
        """Yield the files that exist, each once, parsed. A file whose content is not known is reported."""
        for path in dict.fromkeys(paths):
            try:
                text = read_file(path)
            except UnreadableFile as error:
                self.report(str(path), "", str(error), holds=error.holds)
            else:
                yield from self.parsed(str(path), text, parse)

    def parsed(self, file: str, text: str | None, parse: Parse) -> Iterator[Parsed]:
        """Yield a text, parsed, unless there is none. One that cannot be read is reported."""
        try:
            if text is not None:
                yield file, parse(text)
        except UnreadableFile as error:
            self.report(file, "", str(error), holds=error.holds)

    def report(self, file: str, key: str, meaning: str, *, holds: bool = True) -> None:
        self.found.append(BillingFinding(file=file, key=key, meaning=meaning, holds=holds))

    def report_keys(
        self,
        file: str,
        variables: object,
        names: Iterable[str] | re.Pattern[str],
        *,
        prefix: str = "",
        meaning: str = BILLS,
    ) -> None:
        """Report those of the variables in a file that hold a key which is not the account's own."""
        if isinstance(names, re.Pattern):
            names = [name for name, _ in items_of(variables) if names.fullmatch(name)]
        for name in names:
            if self.is_foreign(member(variables, name)):
                self.report(file, prefix + name, meaning)

    def report_keys_of_providers(
        self, file: str, place: str, providers: object, keys: KeysOf, used: str | None
    ) -> None:
        """Report the keys of the model providers in a file, of all of them unless it is known which is `used`."""
        for name, entry in items_of(providers):
            for key, value in keys(entry) if used in (None, name) else ():
                if self.is_foreign(value):
                    self.report(file, f"{place}.{name}.{key}", BILLS)

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


def read_content(path: Path, parse: Parse) -> object:
    """Return the parsed content of a file; None if there is none, or if it is not known."""
    try:
        text = read_file(path)
        return None if text is None else parse(text)
    except UnreadableFile:
        return None
