"""Names with slashes in them, in paths: `/concurrency/limits/anthropic/max-1`, `/v1/units/docs/a/why`.

Such a name is folded into one part of the path before routes are looked for, so that routes have plain parameters.
A client may write the slashes as they are or as `%2F`; the server has unquoted the path in either case.
"""

from typing import Final
from urllib.parse import quote, unquote

NAMES: Final = ("/concurrency/limits/", "/concurrency/cooldown/", "/concurrency/restore/")
UNITS: Final = "/v1/units/"
OF_A_UNIT: Final = ("/why", "/log")


def fold_path(path: str) -> str:
    """The path with the name in it as one part."""
    for prefix in NAMES:
        if path.startswith(prefix) and len(path) > len(prefix):
            return prefix + quote(path[len(prefix) :], safe="")
    if path.startswith(UNITS) and len(path) > len(UNITS):
        name, tail = path[len(UNITS) :], ""
        for ending in OF_A_UNIT:
            if name.endswith(ending) and "/" in name[: -len(ending)]:  # the id of a unit has a slash
                name, tail = name[: -len(ending)], ending
        return UNITS + quote(name, safe="") + tail
    return path


def unfold(name: str) -> str:
    """The name as it was."""
    return unquote(name)
