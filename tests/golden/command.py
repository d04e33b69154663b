"""The `paceline` command in a folder of its own, run in this process because a new one takes a second to start."""

import contextlib
import io
import json
import os
import runpy
import sys
import types
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.golden.normal import normal, normal_screen, normal_text

LOOKS = {"TZ": "UTC", "COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb", "LANG": "C.UTF-8"}


class Answer(msgspec.Struct, frozen=True):
    """What a command printed, and its exit code."""

    exit: int
    out: str
    err: str

    def json(self) -> Any:
        """Return the printed JSON; a list where each line is a value of its own."""
        try:
            return json.loads(self.out)
        except json.JSONDecodeError:
            return [json.loads(line) for line in self.out.splitlines()]


class Home:
    """A folder with a home in it, and commands given there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {
            **LOOKS,
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PACELINE_HOME": str(folder / "home"),
        }

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, "utf-8")

    def give(self, *argv: str, stdin: str = "") -> Answer:
        """Run one command as `python -m paceline` does."""
        out, err = _stream(), _stream()
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            for name in os.environ.keys() - self.environ.keys():
                patch.delenv(name)
            for name, value in self.environ.items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["paceline", *argv])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8"))
            patch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))  # the command is named after it
            code = _exit_code()
        return Answer(code, _content(out), _content(err))


def _exit_code() -> int:
    try:
        runpy.run_module("paceline", run_name="__main__")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


def _stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)


def _content(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode()


class Script:
    """Commands in their order, each once for its JSON and once for its text where it changes nothing."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.values: list[dict[str, Any]] = []
        self.texts: list[str] = []

    def look(self, *argv: str) -> None:
        """Record a command that only shows something, in both forms."""
        self.value(*argv)
        self.text(*argv)

    def value(self, *argv: str, stdin: str = "", is_exact: bool = False) -> None:
        """Record the JSON of a command and its exit code; as it is where nothing in it can vary."""
        answer = self.home.give(*argv, "--json", stdin=stdin)
        found = answer.json() if answer.out else None
        shown = found if is_exact else normal(found, self.home.folder)
        self.values.append({"command": self._named(argv), "exit": answer.exit, "json": shown})

    def text(self, *argv: str, stdin: str = "") -> None:
        """Record what a person reads."""
        answer = self.home.give(*argv, stdin=stdin)
        said = normal_screen(answer.out + answer.err, self.home.folder)
        self.texts.append(f"$ paceline {self._named(argv)}\n{said}[exit {answer.exit}]\n")

    def code(self, *argv: str, stdin: str = "") -> None:
        """Record the exit code and the text: for errors, and for commands without JSON."""
        answer = self.home.give(*argv, stdin=stdin)
        self.values.append({"command": self._named(argv), "exit": answer.exit})
        said = normal_screen(answer.out + answer.err, self.home.folder)
        self.texts.append(f"$ paceline {self._named(argv)}\n{said}[exit {answer.exit}]\n")

    def _named(self, argv: tuple[str, ...]) -> str:
        return normal_text(" ".join(argv), self.home.folder)
