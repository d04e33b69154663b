"""The protocol of a request, the model in its URL, and the scope it is counted in.

Here: what follows from a provider's name and a path. Never here: bodies, keys or responses.
"""

import re
from functools import lru_cache
from typing import Literal
from urllib.parse import unquote

from paceline.core.values.scopes import is_model_part

Family = Literal["anthropic", "openai", "gemini"]
"""A way to write keys, errors and usage. `openai` is Chat Completions, Responses and every API that copies them."""

UNNAMED_MODEL = "unnamed"
"""The model of requests that name none, so that a limit can include or exclude them."""

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
_UNCOUNTED_PATH = re.compile(
    r"(?:/count_tokens|:countTokens|/input_tokens|/files|/uploads|/batches"
    r"|:batchGenerateContent|:asyncBatchEmbedContent)(?:/|$)"
)
_MODEL_IN_PATH = re.compile(r"/(?:models|tunedModels|deployments)/([^/:]+(?::[^/:]+)*?)(?::\w+$|/|$)")
_COLON = re.compile("%3a", re.IGNORECASE)
# What a provider bills by the call. Everything else of an API manages what others of the account have stored there.
_MODEL_CALL = re.compile(
    r"/(?:messages|complete|completions?|responses(?:/compact)?|chat|generate|infill|embeddings?|embed|rerank|score"
    r"|classify|pooling|moderations|ocr|images/(?:generations|edits|variations)"
    r"|audio/(?:speech|transcriptions|translations)|invoke|invoke-with-response-stream|converse|converse-stream"
    r"|(?:models|endpoints)/[^/]+:(?:generateContent|streamGenerateContent|embedContent|batchEmbedContents"
    r"|predict|rawPredict|streamRawPredict))/?$"
)
_TOKEN_COUNT = re.compile(r"(?:/count_tokens|:countTokens|/input_tokens|/tokenize)/?$")
_MODEL_LIST = re.compile(r"(?:/models(?:/(?!operations)[^/:]+){0,2}(?:/endpoints)?|/api/tags)/?$")
_STORED_THINGS = re.compile(
    r"/(?:threads|assistants|conversations|vector_stores|fine_tuning|fine-tunes|evals|containers|organizations?"
    r"|batches|files|uploads|jobs|realtime)(?:/|$)"
)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._:@+~-]")
_LONGEST_MODEL = 120
"""Characters of a model in a scope. Real names are shorter; a client may send anything."""


def family_of(provider: str, path: str = "") -> Family:
    """Return the protocol of a request, from its path or else from its provider."""
    if _ANTHROPIC_PATH.search(path):
        return "anthropic"
    if _OPENAI_PATH.search(path):
        return "openai"
    if _GEMINI_PATH.search(_with_colons(path)):
        return "gemini"
    return _FAMILY_OF_PROVIDER.get(provider, "openai")


def takes_slot(method: str, path: str) -> bool:
    """Return whether a request makes a model work. Lists, token counts, files and batches need no slot."""
    return method.upper() == "POST" and _UNCOUNTED_PATH.search(_with_colons(path)) is None


def is_model_use(method: str, path: str) -> bool:
    """Return whether a request calls a model, counts tokens or lists models, and does nothing else."""
    path = _with_colons(path)
    if _STORED_THINGS.search(path) is not None:
        return False
    if method == "POST":
        return _MODEL_CALL.search(path) is not None or _TOKEN_COUNT.search(path) is not None
    return method in ("GET", "HEAD") and _MODEL_LIST.search(path) is not None


def home_family(provider: str) -> Family | None:
    """Return the native protocol of a provider, None if the provider is unknown."""
    return "openai" if provider == "openai" else _FAMILY_OF_PROVIDER.get(provider)


def detect_name(provider: str) -> str:
    """Return the name under which `detect` knows the HTTP API of this provider; else the name itself."""
    return _NAME_IN_DETECT.get(provider, provider)


def model_in_path(path: str) -> str | None:
    """Return the model in a URL, as Gemini (`/models/MODEL:generateContent`) and Azure write it, or None."""
    found = _MODEL_IN_PATH.search(_with_colons(path))
    return unquote(found[1]) if found is not None else None


@lru_cache(maxsize=4096)
def scope_of(provider: str, account: str, model: str | None) -> str:
    """Return the scope a request is counted in. Characters that a scope cannot have become dashes."""
    name = _NOT_IN_NAMES.sub("-", (model or "").rsplit("/", 1)[-1])[:_LONGEST_MODEL].lstrip("._:@+~-")
    return f"{provider}/{account}/{name if is_model_part(name) else UNNAMED_MODEL}"


def _with_colons(path: str) -> str:
    """Return the path as servers read it: they decode a colon before they look for the method after it."""
    return _COLON.sub(":", path)
