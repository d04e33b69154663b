"""Settings from the environment: PACELINE_* variables as a document, the home folder, and the search for the file.

The environment is always an argument. Never here: reading the environment of the process.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from paceline.errors import InvalidInput
from paceline.settings.checks import Document, KeyPath, Mistakes, nearest
from paceline.settings.model import ApiTable, EngineTable, RetentionTable

FILE_NAME = "paceline.toml"
PREFIX = "PACELINE_"
HOME = "PACELINE_HOME"
FILE = "PACELINE_CONFIG"
LIMITS = "PACELINE_LIMITS"
KEYS: dict[str, KeyPath] = {
    "PACELINE_POOL": ("pool", "sessions"),
    "PACELINE_POOL_RUNS": ("pool", "runs"),
    **{
        f"{PREFIX}{table}_{key}".upper(): (table, key)
        for table, fields in {"engine": EngineTable, "api": ApiTable, "retention": RetentionTable}.items()
        for key in fields.__struct_fields__
    },
    "PACELINE_STORE_URL": ("store", "url"),
}
SETTINGS = (HOME, FILE, LIMITS, *KEYS)
"""The variables that set something."""
OTHERS = (
    "PACELINE_UNIT",
    "PACELINE_ATTEMPT",
    "PACELINE_SPOOL",
    "PACELINE_GATEWAY_KEY",
    "PACELINE_PORT_BASE",
    "PACELINE_CHECK_OUTPUT",
    "PACELINE_TOKEN",
    "PACELINE_URL",
    "PACELINE_TEST_POSTGRES",
    "PACELINE_FUZZ_SECONDS",
)
"""Variables that set nothing here: Paceline sets them for its sessions, or programs that use it read them."""
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_FRACTION = re.compile(r"-?[0-9]{1,18}\.[0-9]{1,18}")


def read_environment(environ: Mapping[str, str], mistakes: Mistakes) -> Document:
    """Return the variables that are set, in the form of the file. An empty one counts as not set."""
    values: dict[str, dict[str, object]] = {}
    for name, (table, key) in KEYS.items():
        if content := environ.get(name, "").strip():
            values.setdefault(str(table), {})[str(key)] = _number_or_text(content)
    if limits := environ.get(LIMITS, "").strip():
        values["limits"] = _read_limits(limits, mistakes)
    names: dict[KeyPath, str] = {("limits",): LIMITS, **{path: name for name, path in KEYS.items()}}
    return Document("environment", values, mistakes, names=names)


def refuse_unknown(environ: Mapping[str, str], named: Iterable[str], mistakes: Mistakes) -> None:
    """Refuse every other variable with our prefix: a setting that has no effect is worse than an error.

    `named` are variables that the file names itself, such as one that holds a key.
    """
    known = {*SETTINGS, *OTHERS, *named}
    for name, content in environ.items():
        if name.startswith(PREFIX) and name not in known and content.strip():
            meant = _meant(name)
            fix = f"did you mean {meant}?" if meant else f"unset it; the settings are {', '.join(SETTINGS)}"
            mistakes.add(name, f"no such variable; {fix}")


def _meant(name: str) -> str | None:
    """Return the setting whose variable, key or full key is most similar to the name."""
    spellings = {name.removeprefix(PREFIX): name for name in SETTINGS}
    for variable, (table, key) in KEYS.items():
        for spelling in (f"{table}_{key}", str(key)):
            spellings.setdefault(spelling.upper(), variable)
    near = nearest(name.removeprefix(PREFIX), spellings)
    return spellings[near] if near else None


def _read_limits(content: str, mistakes: Mistakes) -> dict[str, object]:
    limits: dict[str, object] = {}
    for entry in filter(None, (part.strip() for part in content.split(","))):
        scope, equals, limit = (part.strip() for part in entry.rpartition("="))
        if not equals:
            mistakes.add(LIMITS, f"{entry!r:.80} must be SCOPE=NUMBER or SCOPE=none, separated by commas")
        elif scope in limits:
            mistakes.add(LIMITS, f"{scope!r:.80} is set twice")
        else:
            limits[scope] = _number_or_text(limit)
    return limits


def _number_or_text(content: str) -> object:
    """Convert text that looks like a number: variables are always text."""
    if _WHOLE.fullmatch(content):
        return int(content)
    return float(content) if _FRACTION.fullmatch(content) else content


def find_file(start: Path, environ: Mapping[str, str]) -> Path | None:
    """Return the file named by PACELINE_CONFIG, else the first one upward from `start`, else the user's own."""
    if named := environ.get(FILE):
        return start / expand_home(named, environ)  # named explicitly: reading it reports if it is missing
    folders = [start, *start.parents, _xdg_folder("XDG_CONFIG_HOME", ".config", environ)]
    return next((folder / FILE_NAME for folder in folders if os.path.isfile(folder / FILE_NAME)), None)


def home_folder(start: Path, environ: Mapping[str, str]) -> Path:
    """Return PACELINE_HOME, else Paceline's folder in the XDG state folder."""
    if named := environ.get(HOME):
        return start / expand_home(named, environ)
    return _xdg_folder("XDG_STATE_HOME", ".local/state", environ)


def expand_home(text: str, environ: Mapping[str, str]) -> str:
    """Expand `~` at the beginning. `~name` is left unchanged."""
    return f"{user_home(environ)}{text[1:]}" if text == "~" or text.startswith("~/") else text


def user_home(environ: Mapping[str, str]) -> Path:
    """Return HOME, or the account's home folder if it is not set."""
    try:
        return Path(environ.get("HOME") or Path.home())
    except RuntimeError:
        raise InvalidInput("this account has no home folder; set HOME or PACELINE_HOME") from None


def _xdg_folder(variable: str, default: str, environ: Mapping[str, str]) -> Path:
    named = Path(environ.get(variable, ""))
    base = named if named.is_absolute() else user_home(environ) / default  # XDG: relative paths are ignored
    return base / "paceline"
