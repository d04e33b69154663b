"""Model names that agent CLIs know. Pure, and only a hint: behind a base URL of your own any name may exist."""

import re

from paceline.core.values.scopes import canonical_model

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
