"""Names with slashes in URL paths: `/concurrency/limits/anthropic/max-1`, `/v1/units/docs/a/why`.

Such a name is folded into one part of the path before routing, so that routes have plain parameters. A client may
write the slashes as they are or as `%2F`; the server has unquoted the path in either case.
"""

from typing import Final
from urllib.parse import quote, unquote

SCOPE_PREFIXES: Final = (
    "/concurrency/limits/",
    "/concurrency/cooldown/",
    "/concurrency/rates/",
    "/concurrency/restore/",
)
UNIT_PREFIX: Final = "/v1/units/"
UNIT_VIEWS: Final = ("/why", "/log", "/output", "/diff")
UNIT_ACTIONS: Final = ("/retry", "/cancel", "/pause", "/resume", "/accept")


def fold_path(path: str, method: str) -> str:
    """Return the path with the name in it quoted into one part.

    A unit may be named `docs/log` or `docs/retry`: the end of a path is a view only behind a whole unit id, and an
    action only in a POST, which is nothing else for a unit.
    """
    for prefix in SCOPE_PREFIXES:
        if path.startswith(prefix) and len(path) > len(prefix):
            return prefix + quote(path[len(prefix) :], safe="")
    if path.startswith(UNIT_PREFIX) and len(path) > len(UNIT_PREFIX):
        name, tail = _split_ending(path[len(UNIT_PREFIX) :], method)
        return UNIT_PREFIX + quote(name, safe="") + tail
    return path


def _split_ending(name: str, method: str) -> tuple[str, str]:
    """Return the unit's name and the one ending behind it: the name itself may end like an action."""
    for ending in UNIT_ACTIONS if method == "POST" else UNIT_VIEWS:
        if name.endswith(ending) and (method == "POST" or "/" in name[: -len(ending)]):
            return name[: -len(ending)], ending
    return name, ""


def unfold(name: str) -> str:
    """Return the name of a folded part."""
    return unquote(name)
