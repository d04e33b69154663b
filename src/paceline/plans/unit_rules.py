"""Rules for the units of a plan: each is checked by itself and against those before it.

Here: what makes a unit valid. Never here: where units come from.
"""

import os
import re
from pathlib import Path

import msgspec

from paceline.agents.inline_script import unsafe_message, unsafe_placeholders
from paceline.config_files.documents import Mistakes, cut, shown
from paceline.store.interface import UnitSpec

LARGEST_PROMPT_BYTES = 1024 * 1024
"""Agents read at most a few hundred thousand tokens; a longer text is a file that was named by mistake."""
_LONGEST_ID_BYTES = 200
"""An id names files. File systems allow 255 bytes, which leaves room for a suffix."""
_SAFE_ID = re.compile(r"[^\x00-\x20\x7f./\\-](?:[^\x00-\x1f\x7f/\\]*[^\x00-\x20\x7f/\\])?")


class PromptRules(msgspec.Struct, frozen=True):
    """The rules for prompts of an agent."""

    is_needed: bool = True
    most_bytes: int = LARGEST_PROMPT_BYTES
    why_most: str = "a prompt is at most 1 MiB; put the rest into a file and name it in the prompt"
    command: tuple[str, ...] = ()
    """The plan's own command, whose placeholders the values of each unit replace."""
    is_for_here: bool = True
    """Whether units may run on this machine, so that their folders must be there."""
    has_own_tree: bool = False
    """Whether each unit works in a tree of its own, in which its output is nobody else's."""


class UnitList:
    """The valid units so far. Relative paths begin in the folder of the plan and become absolute."""

    def __init__(self, folder: Path, rules: PromptRules, mistakes: Mistakes) -> None:
        self.units: list[UnitSpec] = []
        self.sources: set[str] = set()
        """Files that prompts were read from. No unit may overwrite one."""
        self._folder = os.path.abspath(folder)
        self._rules = rules
        self._mistakes = mistakes
        self._place_of_id: dict[str, object] = {}
        self._place_of_output: dict[str, object] = {}
        self._is_folder: dict[str, bool] = {}

    def add(self, place: object, name: str, prompt: str, cwd: str | None = None, output: str | None = None) -> None:
        """Check a unit. Keep it if it is valid, else add its mistakes."""
        before = len(self._mistakes)
        self._check_id(place, name)
        self._check_prompt(place, name, prompt)
        self._check_script(place, name, prompt)
        folder = self._folder if cwd is None else self._checked_folder(place, name, cwd)
        file = None if output is None else self._checked_output(place, name, output, folder)
        if len(self._mistakes) == before:
            self.units.append(UnitSpec(id=name, prompt=prompt, cwd=folder, output=file))

    def _refuse(self, place: object, name: str, message: str) -> None:
        self._mistakes.add(place, f"unit {shown(name)}: {message}")

    def _check_id(self, place: object, name: str) -> None:
        if not is_safe_name(name):
            self._refuse(place, name, f"this id cannot be used: {SAFE_NAME}")
        first = self._place_of_id.setdefault(name, place)
        if first is not place:
            self._refuse(place, name, f"this id is already used at {first}; give each unit an id of its own")

    def _check_prompt(self, place: object, name: str, prompt: str) -> None:
        if "\0" in prompt:
            line = prompt.count("\n", 0, prompt.index("\0")) + 1
            self._refuse(place, name, f"the prompt has a NUL character in its line {line}; remove it")
        if self._rules.is_needed and not prompt.strip():
            self._refuse(place, name, "the prompt is empty or missing")
        if len(prompt) * 4 > self._rules.most_bytes:  # no character has more than four bytes
            size = len(prompt.encode(errors="replace"))
            if size > self._rules.most_bytes:
                self._refuse(place, name, f"the prompt has {size:,} bytes; {self._rules.why_most}")

    def _check_script(self, place: object, name: str, prompt: str) -> None:
        values = {"id": name, "prompt": prompt}
        for unsafe in unsafe_placeholders(self._rules.command, values):
            self._refuse(place, name, unsafe_message(unsafe, values[unsafe]))

    def _checked_folder(self, place: object, name: str, cwd: str) -> str:
        path = self._absolute(cwd)
        if path is None or not cwd:
            self._refuse(place, name, f"cwd {shown(cwd)} cannot be a folder")
            return self._folder
        if path not in self._is_folder:
            self._is_folder[path] = not self._rules.is_for_here or os.path.isdir(path)
        if not self._is_folder[path]:
            self._refuse(place, name, f"cwd {shown(cwd)}: there is no folder {cut(path)}")
        return path

    def _checked_output(self, place: object, name: str, output: str, folder: str) -> str | None:
        path = self._absolute(output)
        if path is None or not output or output.endswith("/"):
            self._refuse(place, name, f"output {shown(output)} cannot be a file")
            return None
        if not (_is_inside(path, self._folder) or _is_inside(path, folder)):
            self._refuse(place, name, f"output {shown(output)} must lie in the plan's folder or in the unit's cwd")
        if self._rules.has_own_tree:
            return path
        if path in self.sources:
            self._refuse(place, name, f"output {shown(output)} would overwrite the file a prompt comes from")
        first = self._place_of_output.setdefault(path, place)
        if first is not place:
            self._refuse(place, name, f"output {shown(output)} is already the output of the unit at {first}")
        return path

    def _absolute(self, path: str) -> str | None:
        if "\0" in path or not _is_unicode(path):
            return None
        return os.path.normpath(os.path.join(self._folder, path))


SAFE_NAME = "it must be 1 to 200 bytes without / \\ or control characters, and not begin with . or - or end in a space"


def is_safe_name(name: str) -> bool:
    """Return whether the name can be a file name and an argument of a command."""
    return _SAFE_ID.fullmatch(name) is not None and _is_unicode(name) and len(name.encode()) <= _LONGEST_ID_BYTES


def _is_unicode(text: str) -> bool:
    """Return whether the text is Unicode: names of files may not be, and the store takes nothing else."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_inside(path: str, folder: str) -> bool:
    return path.startswith(folder if folder.endswith("/") else folder + "/")
