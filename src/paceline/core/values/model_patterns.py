"""Lists of models, by name or pattern, compared with the names that clients send.

A list allows, so a name that could mean more than it says must not fit. A limit of a scope restricts, so its patterns
(`scopes.ScopePattern`) fit in more ways than these. Never here: who has such a list.
"""

from fnmatch import fnmatchcase
from functools import lru_cache

from paceline.core.values.scopes import canonical_model

_WILDCARDS = "*?"


def model_pattern(text: str) -> str:
    """Return the one spelling of a name or pattern in a list."""
    text = text.lower().strip()
    return text if "/" in text or _is_pattern(text) else canonical_model(text)


@lru_cache(maxsize=4096)
def is_listed(patterns: tuple[str, ...], model: str, provider: str) -> bool:
    """Return whether a model, as a client of that provider names it, is in the list."""
    return any(_fits(pattern, model.lower().strip(), provider) for pattern in patterns)


def _fits(pattern: str, model: str, provider: str) -> bool:
    """Compare with the vendor where the pattern names one; the vendor of a plain name is the provider."""
    vendor, slash, wanted = pattern.rpartition("/")
    own, _, name = (model if "/" in model else f"{provider}/{model}").rpartition("/")
    return (not slash or fnmatchcase(own, vendor)) and _fits_name(wanted, name)


def _fits_name(pattern: str, name: str) -> bool:
    """Compare with the name as it was sent, dates included, and in its one spelling."""
    canonical = canonical_model(name)
    if not _is_pattern(pattern):
        return canonical_model(pattern) == canonical
    if fnmatchcase(name, pattern) or fnmatchcase(canonical, pattern):
        return True
    short = pattern.removeprefix("claude-")
    return bool(short.strip(_WILDCARDS)) and fnmatchcase(canonical, short)


def _is_pattern(text: str) -> bool:
    return any(wildcard in text for wildcard in _WILDCARDS)
