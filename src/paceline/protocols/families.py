"""Which protocol a request speaks, where it names its model, and which scope it is counted in.

Here: what a provider's name and a path tell. Never here: bodies, keys or answers.
"""

import re
from functools import lru_cache
from typing import Literal
from urllib.parse import unquote

Family = Literal["anthropic", "openai", "gemini"]
"""How a protocol spells keys, errors and usage. `openai` is Chat Completions, Responses and all that took them over."""

UNNAMED_MODEL = "unnamed"
"""The model of requests that name none, so that caps per model can be told to hold for them or not."""

_FAMILY_OF_PROVIDER: dict[str, Family] = {
    "anthropic": "anthropic",
    "claude": "anthropic",
    "google": "gemini",
    "gemini": "gemini",
    "vertex": "gemini",
}
_NAME_IN_DETECT = {
    "anthropic": "anthropic-api",
    "claude": "anthropic-api",
    "openai": "openai-api",
    "google": "gemini-api",
    "gemini": "gemini-api",
    "azure": "azure-openai",
    "zai": "zai-api",
    "moonshot": "moonshot-api",
    "kimi": "moonshot-api",
}
# The last part of a path decides: one server may speak several protocols.
_ANTHROPIC_PATH = re.compile(r"/v\d/(?:messages(?:/count_tokens|/batches\b.*)?|complete)/?$")
_OPENAI_PATH = re.compile(r"/(?:chat/completions|completions|responses(?:/.*)?|embeddings|audio/\w+|images/\w+)/?$")
_GEMINI_PATH = re.compile(r"/(?:models|tunedModels)/[^/]+:\w+$")
_UNCOUNTED_PATH = re.compile(r"(?:/count_tokens|:countTokens|/files|/uploads|/batches)(?:/|$)")
_MODEL_IN_PATH = re.compile(r"/(?:models|tunedModels|deployments)/([^/:]+(?::[^/:]+)*?)(?::\w+$|/|$)")
_NO_NAME = re.compile(r"[^A-Za-z0-9._:@+~-]")
_LONGEST_MODEL = 120


def family_of(provider: str, path: str = "") -> Family:
    """The protocol of a request: what its path says, else what the provider is known for."""
    if _ANTHROPIC_PATH.search(path):
        return "anthropic"
    if _OPENAI_PATH.search(path):
        return "openai"
    if _GEMINI_PATH.search(path):
        return "gemini"
    return _FAMILY_OF_PROVIDER.get(provider, "openai")


def is_counted(method: str, path: str) -> bool:
    """Whether a request takes a slot: what makes a model work does, what lists, counts or stores does not."""
    return method.upper() == "POST" and _UNCOUNTED_PATH.search(path) is None


def home_family(provider: str) -> Family | None:
    """The protocol a provider is known for; None for one that is not known."""
    return "openai" if provider == "openai" else _FAMILY_OF_PROVIDER.get(provider)


def detect_name(provider: str) -> str:
    """The name by which `detect` knows the HTTP answers of this provider; one it does not know is read as any other."""
    return _NAME_IN_DETECT.get(provider, provider)


def model_in_path(path: str) -> str | None:
    """The model that a URL names, as Gemini's (`/models/MODEL:generateContent`) and Azure's do."""
    found = _MODEL_IN_PATH.search(path)
    return unquote(found[1]) if found is not None else None


@lru_cache(maxsize=4096)
def scope_of(provider: str, account: str, model: str | None) -> str:
    """The scope a request is counted in; a model's odd spelling is no reason to refuse it."""
    name = _NO_NAME.sub("-", (model or "").rsplit("/", 1)[-1])[:_LONGEST_MODEL].lstrip("._:@+~-")
    return f"{provider}/{account}/{name or UNNAMED_MODEL}"
