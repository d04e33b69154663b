"""Secrets out of the texts that are stored, logged and shown: reasons, answers, the output of checks, events.

An agent may print a key, and everybody who may read a home sees its reasons. `redactor` prepares a text to leave the
machine and removes whatever it does not know. Here only what is certainly or very probably a secret is removed: people
read these texts for the paths, hosts, ids and numbers in them. Pure: text in, text out.
"""

import functools
import re
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import msgspec

from paceline.core.signals import Signal

SomeSignal = TypeVar("SomeSignal", bound=Signal)

SHORTEST = 8
"""No secret is shorter than this."""
_OF_PROVIDERS = (
    *("sk-", "sk_live_", "sk_test_", "rk_live_", "pk_live_", "gsk_", "xai-", "glpat-", "ghp_", "gho_", "ghu_", "ghs_"),
    *("ghr_", "github_pat_", "xoxa-", "xoxb-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "xapp-", "whsec_"),
    *("AKIA", "ASIA", "AIza"),
)
"""Prefixes by which providers mark their keys."""
_ALSO_WORDS = (
    *("hf_", "pplx-", "r8_", "fw_", "nvapi-", "csk-", "npm_", "pypi-", "dop_v1_", "shpat_", "ya29.", "lin_api_", "SG."),
    *("dckr_pat_", "sbp_", "figd_"),
)
"""The same, where names of other things begin like this: only what is long counts."""
_PREFIXES = tuple(prefix.lower() for prefix in (*_OF_PROVIDERS, *_ALSO_WORDS))
_KEY = (
    r"(?<![A-Za-z0-9])(?=[\w\-+/=.]{0,100}[\dA-Z])"
    rf"(?:(?:{'|'.join(map(re.escape, _OF_PROVIDERS))})[\w\-+/=.]{{8,4000}}"
    rf"|(?:{'|'.join(map(re.escape, _ALSO_WORDS))})[\w\-+/=.]{{16,4000}})"
)
_PRIVATE_KEY = r"-----BEGIN [A-Z ]{0,40}KEY[A-Z ]{0,20}-----(?:[^-]|-(?!----)){0,20000}(?:-----END [A-Z ]{0,40}-----)?"
_NAMES = ("key", "secret", "passw", "passphrase", "pwd", "credential", "cookie", "authori", "token", "_pass", "_pat")
_NAME = (
    r"(?:api[_\-. ]?key|secret|passw(?:or)?d|passphrase|\bpwd|credentials?|private[_\-. ]?key|(?:set-)?cookie"
    r"|(?:proxy-)?authorization|(?:access|auth|refresh|id|session|bearer|oauth|csrf)[_\-. ]?token|(?<![a-z])token(?!s)"
    r"|(?-i:_(?:KEY|PASS|PAT)))[\w\-]{0,20}"
)
_NAMED = (
    rf"(?i:(?P<name>{_NAME}\\{{0,4}}[\"']?(?P<is>[ \t]{{0,4}}(?:=>|[:=])[ \t]{{0,4}})(?:(?:Bearer|Basic|Token)[ \t]+)?)"
    r"(?P<quote>\\{0,4}[\"']?))(?P<value>[^\s,;}\]\"'\\]{6,4000})"
)
_BEARER = r"(?P<bearer>\b(?:Bearer|Basic)[ \t]{1,4})(?:(?=\S{0,400}\d)\S{8,4000}|[^\s\"',;]{20,4000})"
_BARE = r"(?<![\w+/=.\-])[\w+/=\-]{32,4000}"
_SEAM = re.compile(r"[A-Za-z](?=\d)|\d(?=[A-Za-z])")
_NO_VALUE = re.compile(r"[\d.:%]+|[<$*{].*|[A-Za-z_][\w.]*[(\[{].*")
"""Values that are no secrets: numbers, placeholders, variables, and expressions of a program."""
_WORD = re.compile(r"[A-Za-z]+[.!]?")
_IDS = re.compile(
    r"(?:req|msg|ses|sess|session|conv|chatcmpl|resp|run|thread|asst|call|toolu|gen|trace|sha\d+)[_\-]", re.I
)
"""How ids begin that people need to ask a provider about."""
_FEWEST_SEAMS = 4
"""Changes between letters and digits in a random part of 16 characters: names and versions have fewer."""


class _Shape(NamedTuple):
    """One kind of secret. Only a text with one of the `marks` can have it; they are in lower case."""

    marks: tuple[str, ...]
    pattern: re.Pattern[str]
    replacement: Callable[[re.Match[str]], str] | str


@functools.cache
def _shapes() -> tuple[_Shape, ...]:
    """Return the shapes in their order. They are compiled at first use: most commands store nothing."""
    return (
        _Shape(("-----begin",), re.compile(_PRIVATE_KEY), "<private key>"),
        _Shape(("://",), re.compile(r"(://[^\s/:@]{0,400}:)[^\s/@]{1,400}@"), r"\1<secret>@"),
        _Shape(("eyj",), re.compile(r"\beyJ[\w\-]{8,8000}(?:\.[\w\-]{1,8000}){1,4}"), "<token>"),
        _Shape(_PREFIXES, re.compile(_KEY), "<key>"),
        _Shape(("bearer", "basic"), re.compile(_BEARER), r"\g<bearer><secret>"),
        _Shape(_NAMES, re.compile(_NAMED), _named),
        _Shape(("",), re.compile(_BARE), _bare),
    )


def without_secrets(text: str) -> str:
    """Return the text without the secrets in it."""
    if len(text) < SHORTEST:
        return text
    lower = text.lower()
    for shape in _shapes():
        if any(map(lower.__contains__, shape.marks)):
            text = shape.pattern.sub(shape.replacement, text)
    return text


def signal_without_secrets(signal: SomeSignal) -> SomeSignal:
    """Return the signal without secrets in the words that it was read from."""
    detail = getattr(signal, "detail", None)
    clean = without_secrets(detail) if isinstance(detail, str) else detail
    return signal if clean == detail else msgspec.structs.replace(signal, detail=clean)


def _named(found: re.Match[str]) -> str:
    """Remove the value of a name. After a colon and a space, a word is part of a sentence."""
    value = found["value"]
    is_assigned = bool(found["quote"]) or found["is"] == "="
    if _NO_VALUE.fullmatch(value) or (not is_assigned and _WORD.fullmatch(value)):
        return found[0]
    return f"{found['name']}{found['quote']}<secret>"


def _bare(found: re.Match[str]) -> str:
    token = found[0]
    parts = token.split("/")
    is_random = any(len(part) >= 16 and len(_SEAM.findall(part)) >= _FEWEST_SEAMS for part in parts)
    has_all = any(map(str.isupper, token)) and any(map(str.islower, token))
    return "<key>" if is_random and has_all and not _IDS.match(token) else token
