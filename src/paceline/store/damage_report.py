"""Damaged rows of a SQLite file: each is logged once, and left out of what is read."""

import logging
from typing import Final

log = logging.getLogger("paceline.store")

MOST_REPORTED: Final = 1000
"""Damaged rows that are logged one by one: more would bury everything else in the log."""


class DamageReport:
    """Logs each row that cannot be read once. It stays in the file: perhaps a person can read it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._reported: set[tuple[str, object]] = set()

    def report(self, kind: str, name: object) -> None:
        """Log that the row is left out."""
        if (kind, name) not in self._reported and len(self._reported) < MOST_REPORTED:
            self._reported.add((kind, name))
            log.warning("%s %s in %s is damaged and is left out", kind, name, self._path)
