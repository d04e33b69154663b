"""Recorded answers: what a test compares with, and rewrites when pytest runs with `--record`."""

import json
from pathlib import Path
from typing import Any


class Recordings:
    """The files under one folder. A name is a path in it without its ending."""

    def __init__(self, folder: Path, *, rewrite: bool) -> None:
        self.folder = folder
        self._rewrite = rewrite

    def compare(self, name: str, value: Any) -> None:
        """Compare JSON. Everything that varies must be out of the value already."""
        path = self.folder / f"{name}.json"
        if self._rewrite:
            self._write(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")
        assert value == json.loads(path.read_text("utf-8"))

    def compare_text(self, name: str, text: str) -> None:
        """Compare prose. It has files of its own, because wording may change where values may not."""
        path = self.folder / f"{name}.txt"
        if self._rewrite:
            self._write(path, text)
        assert text == path.read_text("utf-8")

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
