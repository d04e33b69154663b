"""What is known of the agent CLIs beside their profiles: the tested versions, and the model names that they accept.

The versions are those of `scripts/agents.sh` and `scripts/openclaw.sh`: the recorded samples and the tests with real
CLIs use exactly these. Model names are only a hint: behind a base URL of your own any name may exist. Pure.
"""

import re
from collections.abc import Mapping

from paceline.core.values.scopes import canonical_model

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
INSTALL: Mapping[str, str] = {
    "claude": "npm install -g @anthropic-ai/claude-code",
    "codex": "npm install -g @openai/codex",
    "gemini": "npm install -g @google/gemini-cli",
    "openclaw": "npm install -g openclaw",
    "opencode": "npm install -g opencode-ai",
    "qwen": "npm install -g @qwen-code/qwen-code",
    "copilot": "npm install -g @github/copilot",
    "aider": "pip install aider-chat",
}
"""The command that installs each CLI."""
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


_KNOWN = {
    "claude": re.compile(r"(?:default|best|opusplan|opus|sonnet|haiku)(?:\[1m\])?|claude-.+|.*[./:].*"),
    "gemini": re.compile(r"(?:auto|pro|flash|flash-lite)(?:-.+)?|(?:gemini|gemma)-.+|.*/.*"),
    "openclaw": re.compile(r".+/.+"),
    "openclaw-gateway": re.compile(r".+/.+"),
    "opencode": re.compile(r".+/.+"),
}
"""The names that each CLI accepts: aliases, full names, and those of other platforms (Bedrock, Vertex)."""
_CLAUDE = re.compile(r"(?:opus|sonnet|haiku)(?:-.+)?")


def model_problem(agent: str, model: str) -> tuple[str, str] | None:
    """Return what is wrong with the model's name for this agent, and the fix. None if it may be right."""
    known = _KNOWN.get(agent)
    if known is not None and not known.fullmatch(model):
        return f"{agent} does not know the model {model!r}", _suggestion(agent, model)
    if agent == "codex" and _CLAUDE.fullmatch(canonical_model(model)):
        return f"{agent} does not know the model {model!r}", 'name a model of OpenAI, such as model = "gpt-5"'
    return None


def _suggestion(agent: str, model: str) -> str:
    if agent in ("opencode", "openclaw", "openclaw-gateway"):
        return f'write provider/model, such as model = "anthropic/{model}"'
    if agent == "claude" and _CLAUDE.fullmatch(model):
        return f'write model = "claude-{model}", or an alias such as "{model.partition("-")[0]}"'
    examples = {"claude": '"opus" or "claude-opus-4-6"', "gemini": '"gemini-2.5-pro"'}
    return f"write a name that it knows, such as {examples[agent]}"
