"""Checks of single values from files and variables. Each returns the value in the form that the code uses.

A check raises `InvalidInput` with what is expected. The caller adds the location, the key and the value.
"""

import contextlib
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from urllib.parse import SplitResult, urlsplit

from paceline.core.values.settings import AUTO, Cooldown
from paceline.core.values.validation import LARGEST_LIMIT, check_seconds
from paceline.errors import InvalidDuration, InvalidInput, InvalidScope
from paceline.settings.documents import PrivateValue, did_you_mean

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
        raise InvalidInput('must be a whole number >= 1, without quotes, or "none" for unlimited')
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


def cooldown(value: object) -> Cooldown:
    """Check a cooldown: a duration, or "auto"."""
    if value == AUTO:
        return AUTO
    try:
        return duration(value)
    except InvalidInput as error:
        raise InvalidInput(f'{error}; or "{AUTO}" to learn it from usage readings') from None


def span(value: object) -> float:
    """Check a duration that must not be zero."""
    return _duration(value, above_zero=True)


def span_or_none(value: object) -> float | None:
    """Check a duration that must not be zero, or "none" forever."""
    if value == UNLIMITED:
        return None
    try:
        return span(value)
    except InvalidInput as error:
        raise InvalidInput(f'{error}; or "{UNLIMITED}" to keep it forever') from None


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
        least = "longer than 0" if above_zero else "0 or longer"
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
