"""The versions of the agent CLIs that Paceline was tested with, and how a version is read and compared. Pure.

The versions are those of `scripts/agents.sh` and `scripts/openclaw.sh`: the recorded samples and the tests with real
CLIs use exactly these.
"""

import re
from collections.abc import Mapping

TESTED_VERSIONS: Mapping[str, tuple[str, ...]] = {
    "claude": ("2.1.197", "2.1.325"),
    "codex": ("0.166.0",),
    "copilot": ("1.0.102",),
    "gemini": ("0.61.0",),
    "openclaw": ("2026.9.6",),
    "opencode": ("1.18.33",),
    "qwen": ("0.15.10", "0.24.4"),
}
"""The tested versions of each agent, oldest first."""
NEWEST_NEEDS_NODE: Mapping[str, int] = {"claude": 22, "qwen": 22}
"""The Node.js that the newest tested version needs. On an older one npm installs an older version without a word."""
_VERSION = re.compile(r"(?<![\w.])v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?")


def parse_version(text: str) -> tuple[int, int, int] | None:
    """Return the first version number in the text, such as the output of `claude --version`."""
    found = _VERSION.search(text)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3] or 0))


def is_older_than_tested(agent: str, text: str) -> bool:
    """Return whether the version in the text is older than every tested one. False for an unknown agent or version."""
    version, tested = parse_version(text), TESTED_VERSIONS.get(agent)
    return version is not None and tested is not None and version < _number(tested[0])


def is_held_back_by_node(agent: str, text: str) -> bool:
    """Return whether the version is older than the newest tested one, which needs a newer Node.js than many have."""
    version = parse_version(text)
    return version is not None and agent in NEWEST_NEEDS_NODE and version < _number(TESTED_VERSIONS[agent][-1])


def _number(version: str) -> tuple[int, int, int]:
    number = parse_version(version)
    assert number is not None, version
    return number
