"""Values in an inline script: what a plan's command may paste into the script of `sh -c`.

A shell runs whatever it finds in its script, so an id such as `x; rm -rf .` would be a program. Here: the check.
Never here: the command line itself.
"""

import itertools
import os
import re
from collections.abc import Mapping, Sequence

SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "busybox"})
_SCRIPT_FLAG = re.compile(r"-[A-Za-z]*c")
_PLACEHOLDER = re.compile(r"\{(prompt|id|model|session_id)\}")
_HARMLESS = re.compile(r"[\w@%+=:,./ -]*", re.ASCII)
"""Characters that mean nothing to a shell, in quotes or not. A space only ends a word."""


def unsafe_placeholders(command: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Return the placeholders in the script of a shell whose values the shell could take for a program.

    A script that is exactly `{prompt}` is meant as one: there the prompt is the program.
    """
    script = _inline_script(command)
    if script is None or script == "{prompt}":
        return []
    names = dict.fromkeys(_PLACEHOLDER.findall(script))
    return [name for name in names if not _HARMLESS.fullmatch(values.get(name, ""))]


def unsafe_message(name: str, value: str) -> str:
    """Return what is wrong with a value in a script, and the two ways to write it."""
    other = ", or use ${PACELINE_UNIT#*/}" if name == "id" else ""
    return (
        f"{{{name}}} is pasted into a shell script, where {value!r:.80} could run as a program; pass it as an argument:"
        f' ["sh", "-c", "... \\"$1\\"", "sh", "{{{name}}}"]{other}'
    )


def _inline_script(command: Sequence[str]) -> str | None:
    """Return the argument that a shell of this command line runs as a script, or None."""
    has_shell = False
    for part, following in itertools.pairwise(command):
        has_shell = has_shell or os.path.basename(part) in SHELLS
        if has_shell and _SCRIPT_FLAG.fullmatch(part):
            return following
    return None
