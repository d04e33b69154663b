"""Names of scopes: how they are written, spelled canonically, nested and matched by patterns.

A scope is `sessions`, `runs`, `checks`, `campaign:NAME`, `agent:NAME`, `host:NAME`, `key:NAME`, or a provider path of
up to three parts: `anthropic`, `anthropic/max-1`, `anthropic/max-1/opus-4-6` (provider / account / model).
Nothing here knows about capacity.

And lists of models, by name or pattern, compared with the names that clients send. A list allows, so a name that could
mean more than it says must not fit. A limit of a scope restricts, so its patterns (`ScopePattern`) fit in more ways.
"""

import re
from fnmatch import fnmatchcase
from functools import lru_cache

from paceline.core.signals import Reach
from paceline.errors import InvalidScope

SESSIONS = "sessions"
RUNS = "runs"
CHECKS = "checks"
LOCAL = (SESSIONS, RUNS, CHECKS)
"""The scopes of this machine: what the user has, whatever the providers allow."""
UNNAMED_MODEL = "default"
"""The model of a session that leaves the choice to its agent. The strictest cap of a model on the account applies."""

_LONGEST_NAME = 300
"""Longer than any name a provider or a person uses, short enough for logs, keys and pages."""
KEY = "key:"
"""What stands before the name of a client's key, as a scope and as a group of tickets."""
_LABELS = ("campaign:", "agent:", "host:", KEY)
_LABELLED = re.compile(r"(?:campaign|agent):[^/\x00-\x1f\x7f]+|(?:host|key):[A-Za-z0-9][A-Za-z0-9._-]*")
_LABELLED_PATTERN = re.compile(r"(?:campaign|agent):[^/\x00-\x1f\x7f]+|(?:host|key):[A-Za-z0-9*?][A-Za-z0-9._*?-]*")
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+~-]*(?:\[[a-z0-9]{1,8}\])?")
_PATTERN_PART = re.compile(r"[A-Za-z0-9*?][A-Za-z0-9._:@+~*?-]*")
_WILDCARD = re.compile(r"[*?]")

_VENDOR_PREFIX = re.compile(r"(?:[a-z0-9-]+\.)?(?:anthropic|openai|google|meta|mistral|amazon)\.")
_TAIL = re.compile(r"(?:@\d{8}|@latest|@default|[-@]\d{4}-\d{2}-\d{2}|-20\d{6}|-latest|\[[a-z0-9]{1,8}\])$")
_CLAUDE = re.compile(r"claude|opus|sonnet|haiku|fable")
_CLAUDE_REVISION = re.compile(r"(?:-v\d{1,2}(?::\d{1,2})?|:\d{1,2})$")
"""How Amazon ends the names of Claude models. Elsewhere it is another model: `deepseek-v3`, `qwen3:32`."""
_CLAUDE_NEW = re.compile(r"(opus|sonnet|haiku|fable)-(\d{1,2})(?:[.-](\d{1,2}))?(?![\d.])")
_CLAUDE_OLD = re.compile(r"(\d)(?:[.-](\d))?-(opus|sonnet|haiku)$")
_CLAUDE_OLD_PATTERN = re.compile(r"(\d)(?:[.-](\d))?-(opus|sonnet|haiku)(?=[*?@-]|$)")
_CLAUDE_DOTTED = re.compile(r"((?:opus|sonnet|haiku|fable)-\d{1,2})\.")
_ALIASES = {"opusplan": "opus", "best": UNNAMED_MODEL, "auto": UNNAMED_MODEL}
"""Names that agent CLIs accept and that hide the model: `opusplan` plans with opus, the others leave it open."""
_CLAUDE_ANY_DATE = re.compile(r"((?:opus|sonnet|haiku|fable)-\d{1,2}-\d{1,2})[-@]\*$")
_ANY_DATE = re.compile(r"[-@]20\d\d[\d-]*\*$")


@lru_cache(maxsize=4096)
def canonical_model(name: str) -> str:
    """Return the one spelling of a model: `anthropic/claude-opus-4-6-20260105` and `opus-4-6` are the same.

    Vendor prefixes, dates, revisions of Claude and context-size tags say where and how a model is served,
    not which quota it draws on, so they go.
    """
    while (model := _stripped(name)) != name:
        name = model  # the result may carry another prefix or date: strip until nothing is left to strip
    return _ALIASES.get(model, model)


def _stripped(name: str) -> str:
    model = name.lower().rsplit("/", 1)[-1].strip()
    model = _without_tail(_VENDOR_PREFIX.sub("", model, count=1))
    return _canonical_claude(model.removeprefix("claude-"))


def _without_tail(model: str) -> str:
    is_claude = _CLAUDE.match(model) is not None
    while True:
        shorter = _TAIL.sub("", model)
        if is_claude:
            shorter = _CLAUDE_REVISION.sub("", shorter)
        if shorter in ("", model):
            return model
        model = shorter


def _canonical_claude(model: str) -> str:
    if old := _CLAUDE_OLD.fullmatch(model):  # 3-5-sonnet was the order of names before version 4
        major, minor, family = old.groups()
        return f"{family}-{major}-{minor}" if minor else f"{family}-{major}"
    if new := _CLAUDE_NEW.match(model):
        family, major, minor = new.groups()
        version = f"{major}-{minor}" if minor else major
        return f"{family}-{version}{model[new.end() :]}"
    return model


def canonical_scope(scope: str) -> str:
    """Return the one spelling of a scope. Raise `InvalidScope` if it is none."""
    if not isinstance(scope, str) or not scope or len(scope) > _LONGEST_NAME:
        raise InvalidScope(f"scope {_shown(scope)} must be a name of 1 to {_LONGEST_NAME} characters")
    return _canonical(scope)


@lru_cache(maxsize=16384)
def _canonical(scope: str) -> str:
    if scope in LOCAL or _LABELLED.fullmatch(scope):
        return scope
    if scope.startswith(("host:", KEY)):
        what = scope.partition(":")[0]
        raise InvalidScope(f"scope {_shown(scope)}: a {what} has a name of letters, digits and . _ -")
    parts = scope.split("/", 2)
    if len(parts) == 3:
        parts[2] = canonical_model(parts[2])
    for part in parts:
        if not _PART.fullmatch(part):
            raise InvalidScope(
                f"scope {_shown(scope)} has a part {_shown(part)} that is not a name; "
                "write provider/account/model with letters, digits and . _ : @ + - "
                "(or campaign:NAME, agent:NAME, host:NAME, key:NAME)"
            )
    if ":" in parts[0]:
        raise InvalidScope(f"scope {_shown(scope)}: only campaign:, agent:, host: and key: may stand before a name")
    return "/".join(parts)


def is_model_part(name: str) -> bool:
    """Return whether a scope can end with this model: `claude-` and others have nothing left in their one spelling."""
    return _PART.fullmatch(canonical_model(name)) is not None


def path_scopes(scope: str) -> tuple[str, ...]:
    """Return a provider path and all it lies in, widest first: `a`, `a/b` and `a/b/c` for `a/b/c`."""
    scope = canonical_scope(scope)
    if not is_provider_scope(scope):
        raise InvalidScope(f"scope {_shown(scope)} is not a provider path; write provider, provider/account or more")
    parts = scope.split("/", 2)
    return tuple("/".join(parts[: n + 1]) for n in range(len(parts)))


def is_provider_scope(scope: str) -> bool:
    """Return whether the scope is the provider's to limit; all others are the user's own."""
    return scope not in LOCAL and not scope.startswith(_LABELS)


def is_unnamed_model(scope: str) -> bool:
    """Return whether the scope stands for the models of an account that a session did not name."""
    return is_provider_scope(scope) and scope.split("/", 2)[2:] == [UNNAMED_MODEL]


def scope_reached(scope: str, reach: Reach | None) -> str:
    """Return the scope a signal is about: as wide as its `reach`, else the one it was seen in."""
    if reach is None or not is_provider_scope(scope):
        return scope
    depth = {"provider": 1, "account": 2, "model": 3}[reach]
    return "/".join(scope.split("/", 2)[:depth])


class ScopePattern:
    """A pattern such as `anthropic/*/opus-*`, matched part by part. Each matching scope has a limit of its own.

    A model pattern that ends in `-*` also matches the name before it: `opus` is an alias of one of the `opus-*`.
    """

    __slots__ = ("is_exact", "specificity", "text")

    def __init__(self, text: str) -> None:
        if isinstance(text, str) and not _WILDCARD.search(text):
            self.text = canonical_scope(text)
        else:
            self.text = _canonical_pattern(text)
        wildcards = len(_WILDCARD.findall(self.text))
        self.is_exact = wildcards == 0
        self.specificity = (-wildcards, len(self.text))

    def matches(self, scope: str) -> bool:
        """Return whether the scope matches. `*` is any provider, never the pool or a scope with a label."""
        if self.is_exact:
            return scope == self.text
        if not (is_provider_scope(scope) or ":" in self.text):
            return False
        return _regex(self.text).fullmatch(scope) is not None

    def matches_account_of(self, scope: str) -> bool:
        """Return whether this caps models inside the provider path `scope`, which names none."""
        parts = self.text.split("/", 2)
        mine = scope.split("/", 2)
        return len(parts) == 3 > len(mine) and all(
            re.fullmatch(_part_regex(part), have) for part, have in zip(parts, mine, strict=False)
        )


def _canonical_pattern(text: str) -> str:
    if not isinstance(text, str) or not text or len(text) > _LONGEST_NAME:
        raise InvalidScope(f"scope pattern {_shown(text)} must be a name of 1 to {_LONGEST_NAME} characters")
    parts = text.split("/", 2)
    if len(parts) == 3:
        parts[2] = _model_pattern(parts[2])
    for part in parts:
        if not (_PATTERN_PART.fullmatch(part) or _LABELLED_PATTERN.fullmatch(part)):
            raise InvalidScope(
                f"scope pattern {_shown(text)} has a part {_shown(part)} that is neither a name nor a wildcard"
            )
    return "/".join(parts)


def _model_pattern(text: str) -> str:
    """Return a model pattern in canonical spelling, because models are matched by their canonical names."""
    if not _WILDCARD.search(text):
        return canonical_model(text)
    model = text.lower().rsplit("/", 1)[-1]
    model = _without_tail(_VENDOR_PREFIX.sub("", model, count=1))
    model = _ANY_DATE.sub("*", model.removeprefix("claude-"))
    if old := _CLAUDE_OLD_PATTERN.match(model):
        major, minor, family = old.groups()
        version = f"{major}-{minor}" if minor else major
        model = f"{family}-{version}{model[old.end() :]}"
    return _CLAUDE_ANY_DATE.sub(r"\1*", _CLAUDE_DOTTED.sub(r"\1-", model, count=1))


@lru_cache(maxsize=1024)
def _regex(pattern: str) -> re.Pattern[str]:
    *wider, last = pattern.split("/", 2)
    if len(wider) == 2 and last.endswith("-*") and last != "-*":
        return re.compile("/".join([*map(_part_regex, wider), _part_regex(last[:-2]) + "(?:-[^/]*)?"]))
    return re.compile("/".join(map(_part_regex, (*wider, last))))


def _part_regex(part: str) -> str:
    return "".join({"*": "[^/]*", "?": "[^/]"}.get(char, re.escape(char)) for char in part)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


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
