"""The agent CLIs' own files, which are only read. What cannot be read counts as empty."""

import json
import tomllib
from pathlib import Path
from typing import Any

_LARGEST_FILE_BYTES = 20_000_000


def read_json(path: Path) -> object:
    """Return the content of a JSON file; None if it cannot be read."""
    try:
        if path.stat().st_size > _LARGEST_FILE_BYTES:
            return None
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def read_table(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file; an empty table if it cannot be read."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}


def inner_value(value: object, *keys: str) -> object:
    """Return the member of nested objects; None where there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
