"""Removal of secrets from text: the redactor for what leaves the machine, and less for what is stored and shown.

Pure: text in, text out. The redactor works in two passes. The first knows names and shapes: keys by their prefixes,
`password=...`, e-mail addresses, home folders, hosts. The second assumes nothing: everything that is long and does not
read like words is taken for a secret. What describes a limit is kept: sentences, model names, error codes, header
names, times. The shapes are data: one entry for each kind of secret, tried in order, every repetition bounded, so that
no text makes matching slow.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from paceline.core.signals import Signal

Replacement = Callable[[re.Match[str]], str | None]
"""Returns the text that replaces a match; None leaves the match unchanged."""

PUBLIC_HOSTS = frozenset(
    (
        *("anthropic.com", "claude.ai", "claude.com", "openai.com", "chatgpt.com", "google.com"),
        *("googleapis.com", "google.dev", "github.com", "githubusercontent.com", "mistral.ai", "groq.com"),
        *("openrouter.ai", "deepseek.com", "x.ai", "together.ai", "cohere.com", "cerebras.ai", "z.ai"),
        *("bigmodel.cn", "moonshot.cn", "moonshot.ai", "opencode.ai", "cursor.com", "ampcode.com"),
        *("factory.ai", "aliyuncs.com", "alibabacloud.com", "azure.com", "amazonaws.com", "microsoft.com"),
        "umans.ai",
    )
)
EPOCHS = ((10**9, 4 * 10**9), (10**12, 4 * 10**12))
"""Unix times in seconds and milliseconds. Resets are often written like this, so such numbers stay."""
SHORTEST_OPAQUE = 12
"""Shorter runs of letters are ordinary words and names."""
SHORTEST_PATCHWORK = 16
"""Shorter runs of mixed pieces are versions and model names."""
LONGEST_WORD = 20
"""No word of a message is longer."""
LONGEST_MIXED = 4
"""Short mixes of letters and digits are units and versions: `16k`, `v2`."""

_JOINERS = re.compile(r"[_\-./=:+~%]")
_PIECES = re.compile(r"[A-Za-z]+|\d+")
_SEAMS = re.compile(r"[A-Za-z](?=\d)|\d(?=[A-Za-z])")
_HUMPS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_TIME = re.compile(r"(?:\d{1,6}(?:\.\d{1,9})?(?:ms|[dhms])){1,5}\.?|\d{8}T\d{4,6}Z?|\d{4}-\d\d-\d\dT\d[\d.]{0,16}Z?")
"""Durations and dates as providers spell them: `4h28m20s`, `20260105T120000Z`."""


class Shape(msgspec.Struct, frozen=True):
    """One kind of secret: its pattern, which is compiled at first use, and what replaces a match.

    Only a text with one of the `marks`, in lower case, can have it.
    """

    kind: str
    source: str
    replacement: Replacement
    flags: int = 0
    marks: tuple[str, ...] = ("",)

    @property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.source, self.flags)


def is_epoch(digits: str) -> bool:
    return len(digits) <= 13 and any(low <= int(digits) < high for low, high in EPOCHS)


def is_public(host: str) -> bool:
    labels = host.lower().rstrip(".").split(".")
    return any(".".join(labels[first:]) in PUBLIC_HOSTS for first in range(len(labels) - 1))


# -- replacements --------------------------------------------------------------------------------------


def always(placeholder: str) -> Replacement:
    """Replace with this text, which may name groups of the match."""
    return lambda found: found.expand(placeholder)


def after_name(found: re.Match[str]) -> str | None:
    """Keep the name and remove its value. A value that an earlier shape replaced is not counted twice."""
    return None if found["value"].strip("\\\"'").startswith("<") else f"{found['name']}<secret>"


def address(found: re.Match[str]) -> str:
    """Keep host and path of a public provider. Any other address becomes a placeholder."""
    if found["user"] or not is_public(found["host"]):
        return f"{found['scheme']}<host>"
    query = "?<query>" if found["query"] else ""
    return f"{found['scheme']}{found['host']}{found['port'] or ''}{found['path'] or ''}{query}"


def private_host(found: re.Match[str]) -> str | None:
    return None if is_public(found[0]) else "<host>"


def network_address(found: re.Match[str]) -> str | None:
    """Keep loopback and clock times (`12:30:45`): they identify nobody."""
    is_clock = re.fullmatch(r"\d{1,2}:\d\d:\d\d", found[0])
    return None if found[0].startswith("127.") or is_clock else "<host>"


def opaque(found: re.Match[str]) -> str | None:
    return "<id>" if is_opaque(found[0]) else None


def long_number(found: re.Match[str]) -> str | None:
    """Keep dates and Unix times. Any other long number may identify somebody."""
    digits = re.sub(r"\D", "", found[0])
    is_date = re.match(r"\(?(?:19|20)\d\d-\d\d-\d\d", found[0])
    return None if len(digits) < 10 or is_date or (found[0].isdigit() and is_epoch(digits)) else "<number>"


# -- text that does not read like words -----------------------------------------------------------------


def is_opaque(token: str) -> bool:
    """Return whether a run of letters, digits and joiners is more likely an id or a key than words."""
    if _TIME.fullmatch(token):
        return False
    return _is_patchwork(token) or any(_is_opaque_part(part) for part in _JOINERS.split(token))


def _is_opaque_part(part: str) -> bool:
    if len(part) <= LONGEST_MIXED or _TIME.fullmatch(part):
        return False
    if part.isdigit():
        return len(part) > 8 and not is_epoch(part)
    if part.isalpha():
        return len(part) >= SHORTEST_OPAQUE and _are_opaque_letters(part)
    # `resets3pm` and `16k` are words with a number; `a8f3e91c` is not.
    return (len(part) >= 8 and len(_PIECES.findall(part)) > 2) or len(part) > 16


def _are_opaque_letters(letters: str) -> bool:
    """Return whether letters look random: they change case often, unlike the humps of `PerProjectPerModel`."""
    humps = _HUMPS.findall(letters)
    short = sum(len(hump) <= 2 for hump in humps)
    return short >= 2 or len(letters) < 3.2 * len(humps) or any(len(hump) > LONGEST_WORD for hump in humps)


def _is_patchwork(token: str) -> bool:
    """Return whether the token consists of many short mixed pieces, as ids and keys with joiners do."""
    if len(token) < SHORTEST_PATCHWORK:
        return False
    short_humps = sum(len(hump) <= 2 for hump in _HUMPS.findall(token))
    return len(_SEAMS.findall(token)) >= 4 or (short_humps >= 4 and token != token.lower() and token != token.upper())


# -- the shapes -------------------------------------------------------------------------------------------

_TO_SPACE = r"[^\s\"'<>`\\]"
_WRAPPED = r"(?:[ \t│|]{0,8}\r?\n[ \t│|]{0,8}(?=[\w\-]{0,200}\d)[\w\-+/=]{3,400})?"
"""A key that a terminal has wrapped continues at the start of the next line."""
_SECRET_NAME = (
    r"(?:api[_\-. ]?key|secret|passw(?:or)?d|passphrase|pwd|credentials?|private[_\-. ]?key|cookie|authori[sz]ation"
    r"|(?:access|auth|refresh|id|session|bearer|oauth|csrf)[_\-. ]?token|(?<![a-z])token(?!s)|client[_\-. ]?id"
    r"|(?:account|org|organi[sz]ation|user|tenant|project)[_\-. ]?(?:id|uuid)|user[_\-. ]?name|login)"
    r"[\w\-]{0,20}"
)
_IS = r"\\{0,4}[\"']?[ \t]{0,4}(?:=>|[:=])[ \t]{0,4}"
_VALUE = (
    r"(?:\\{1,4}\"[^\"\n]{1,4000}\"?"
    r"|\"(?:[^\"\\\n]|\\[^\n]){1,4000}\"?"
    r"|'[^'\n]{1,4000}'?"
    r"|(?!\\{0,4}[\"'\[{]|(?:null|none)(?:[\s,;}\]]|\Z))[^\s,;}\]\"']{1,4000}" + _WRAPPED + ")"
)
_KEY_NAMES = (
    r"(?:sk|pk|rk|ak|api|key|tok|gsk|hf|xai|pplx|r8|fw|nvapi|csk|glpat|ghp|gho|ghu|ghs|ghr|github_pat|npm|pypi|dop_v1"
    r"|shpat|xox[abeoprs]|xapp|ya29|sess|lin_api|secret|whsec|SG|ops|vercel|dckr_pat|sbp|figd)[_\-.]"
    r"(?=[\w\-]{0,400}[\dA-Z])"
)
_HOME_REST = r"[^\s\"'<>:;,)\]}|]{1,1000}(?: [\w.\-]{1,40}[/\\][^\s\"'<>:;,)\]}|]{0,1000})?"
_PLAIN_TLD = (
    r"com|net|org|io|dev|ai|app|cloud|local|internal|corp|lan|intranet|home|localdomain|test|example|biz|info|gov|edu|tech"
    r"|xyz|site|online|cluster|svc|eu|uk|de|fr|nl|pl|ch|cn|jp|kr|ru|br|ca|au|se|fi|dk|cz"
)
_WORDY_TLD = r"in|at|it|no|me|be|us|is|so|to|co|es"
"""These are words, too: they count only after two labels, or "limit.in" would be a host."""
_LABEL = r"[A-Za-z0-9_][\w\-]{0,62}\."
_IDS = (
    r"req|msg|org|user|acct|account|sess|session|conv|chatcmpl|resp|run|thread|asst|call|toolu|gen|proj|project|trace|ray"
    r"|cus|sub"
)

SHAPES: tuple[Shape, ...] = (
    Shape(
        "private key",
        r"-----BEGIN [A-Z ]{0,40}-----(?:[^-]|-(?!--)){0,20000}(?:-----END [A-Z ]{0,40}-----)?",
        always("<private key>"),
    ),
    Shape(
        "secret",  # the value of a header is the rest of its line
        (
            r"(?P<name>\b(?:proxy-)?(?:authorization|(?:set-)?cookie)2?"
            + _IS
            + r")(?P<value>[^\"'\n]{1,8000}|\\?\"[^\"\n]{1,8000}\"?)"
        ),
        after_name,
        re.I,
    ),
    Shape(
        "address",
        rf"(?P<scheme>\b[a-z][a-z0-9+.\-]{{1,20}}://)(?P<user>[^\s\"']{{1,400}}@)?"
        r"(?P<host>\[[0-9a-fA-F:.]{2,60}\]|[^\s/:?#\"'<>`\\)\]}@,]{1,253})(?P<port>:\d{1,5})?"
        rf"(?P<path>/[^\s?#\"'<>`\\]{{0,2000}})?(?P<query>[?#]{_TO_SPACE}{{0,4000}})?",
        address,
        re.I,
    ),
    Shape(
        "secret",
        (
            r"(?P<name>\b(?:Bearer|Basic|Digest|Negotiate)[ \t]{1,4})(?P<value>(?=[^\s\"'\\]{8})[^\s\"',;\\]{1,4000}"
            + _WRAPPED
            + ")"
        ),
        after_name,
        re.I,
    ),
    Shape("secret", rf"(?P<name>{_SECRET_NAME}{_IS})(?P<value>{_VALUE})", after_name, re.I),
    Shape("token", r"\beyJ[\w\-]{5,8000}(?:\.[\w\-]{1,8000}){0,4}", always("<token>")),
    Shape("key", rf"(?<![A-Za-z0-9])(?:{_KEY_NAMES}|AKIA|ASIA|AIza)[\w\-+/=.]{{6,4000}}{_WRAPPED}", always("<key>")),
    Shape(
        "e-mail address",
        r"[^\s@<>\"'(),;:\\\[\]{}|=/]{1,200}@(?:[^\s@<>\"'(),;:\\\[\]{}|/.]{1,100}\.){1,8}[^\s@<>\"'(),;:\\\[\]{}|/.]{2,40}",
        always("<email>"),
    ),
    Shape(
        "user at host",
        r"(?<![\w@/])[A-Za-z_][\w.\-]{0,40}@[A-Za-z][\w.\-]{0,100}(?=[:\s$#%>~]|\Z)",
        always("<user>@<host>"),
    ),
    Shape(
        "home folder",
        rf"(?<![\w.])(?:/private|/mnt/[a-z])?/(?:home|Users|export/home|var/home)/{_HOME_REST}",
        always("<home>"),
        re.I,
    ),
    Shape("home folder", r"(?<![\w.])(?:/root|~[\w\-]{0,40})/[^\s\"'<>:;,)\]}|]{0,1000}", always("<home>")),
    Shape(
        "home folder",
        rf"\b[A-Za-z]:[\\/]{{1,8}}(?:Users|Documents and Settings)[\\/]{{1,8}}{_HOME_REST}",
        always("<home>"),
        re.I,
    ),
    Shape("id", r"\b[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\b", always("<id>"), re.I),
    Shape(
        "host",
        (
            r"\b(?:\d{1,3}\.){3}\d{1,3}\b|(?<![\w:])(?:[0-9a-f]{1,4}:){2,7}(?::?[0-9a-f]{1,4}){1,6}(?![\w:])"
            r"|(?<![\w:])[0-9a-f]{0,4}(?::[0-9a-f]{1,4}){0,4}::(?:[0-9a-f]{1,4}:){0,4}[0-9a-f]{1,4}(?![\w:])"
        ),
        network_address,
        re.I,
    ),
    Shape(
        "host",
        rf"(?<![\w.\-/])(?:(?:{_LABEL}){{1,8}}(?:{_PLAIN_TLD})|(?:{_LABEL}){{2,8}}(?:{_WORDY_TLD}))(?![\w\-(]|\.\w)",
        private_host,
        re.I,
    ),
    Shape("id", rf"\b(?:{_IDS})[_\-](?=[\w\-]{{0,100}}\d)[\w\-]{{6,400}}", always("<id>")),
    Shape("id", r"[A-Za-z0-9_\-+/=.~%]{8,8000}", opaque),
    Shape("number", r"(?<![\w.:+\-/])\+?\(?\d[\d \-().]{8,22}\d(?![\w.:])", long_number),
)

_CERTAIN = frozenset({"private key", "token", "key"})
"""The kinds that hardly anything else looks like. The others also match addresses, ids and names."""
_PASSWORD_IN_ADDRESS = re.compile(r"://[^\s/:@]{0,400}:[^\s/@]{1,400}@")
_CREDENTIALS = re.compile(r"\b(?:Bearer|Basic)[ \t]{1,4}[^\s\"']{8}", re.I)


def secret_in(text: str) -> str | None:
    """Return the kind of secret that the text certainly contains, or None."""
    if _PASSWORD_IN_ADDRESS.search(text):
        return "password"
    if _CREDENTIALS.search(text):
        return "token"
    return next((shape.kind for shape in SHAPES if shape.kind in _CERTAIN and shape.pattern.search(text)), None)


SHORTEST_KNOWN = 4
"""A shorter value would match inside ordinary words."""
KNOWN = "name or key of this machine"

_ANSI = re.compile(r"\x1b\[[0-?]{0,32}[ -/]{0,8}[@-~]|\x1b\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)?|\x1b[ -/]{0,4}[0-~]")
_INVISIBLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
_ESCAPED = re.compile(r"\\{1,4}u00([2-7][0-9a-fA-F])")
_PERCENT = re.compile(r"%(40|3[aA]|2[fFbBdDeE])")


class Redacted(msgspec.Struct, frozen=True):
    """A text without its secrets, and how many of each kind were removed."""

    text: str
    counts: dict[str, int]


class Redactor:
    """A remover of secrets. `known` values are removed whatever they look like: user and host name, keys."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        values = sorted({value for value in known if len(value) >= SHORTEST_KNOWN}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, values)), re.I) if values else None

    def redact(self, text: str) -> Redacted:
        counts: Counter[str] = Counter()
        clean = readable(text)
        if self._known is not None:
            clean, found = self._known.subn("<known>", clean)
            counts[KNOWN] += found
        for shape in SHAPES:
            clean = shape.pattern.sub(_counting(shape, counts), clean)
        return Redacted(clean, {kind: count for kind, count in counts.items() if count})


def readable(text: str) -> str:
    """Remove colours and control characters, and decode escapes that could hide an address or a key."""
    plain = _INVISIBLE.sub("", _ANSI.sub("", text))
    plain = _ESCAPED.sub(_unescaped, plain)
    return _PERCENT.sub(lambda found: chr(int(found[1], 16)), plain)


def _unescaped(found: re.Match[str]) -> str:
    """Decode one escape. Quotes and backslashes stay escaped, or the JSON around them would break."""
    letter = chr(int(found[1], 16))
    return found[0] if letter in '"\\\x7f' else letter


def _counting(shape: Shape, counts: Counter[str]) -> Callable[[re.Match[str]], str]:
    def replace(found: re.Match[str]) -> str:
        replacement = shape.replacement(found)
        if replacement is None or replacement == found[0]:
            return found[0]
        counts[shape.kind] += 1
        return replacement

    return replace


SomeSignal = TypeVar("SomeSignal", bound=Signal)

# -- texts that are stored, logged and shown: reasons, answers, the output of checks, events ----------------

# An agent may print a key, and everybody who may read a home sees its reasons. The redactor removes whatever it does
# not know. Here only what is certainly or very probably a secret is removed: people read these texts for the paths,
# hosts, ids and numbers in them.

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
_KNOWN_IDS = re.compile(
    r"(?:req|msg|ses|sess|session|conv|chatcmpl|resp|run|thread|asst|call|toolu|gen|trace|sha\d+)[_\-]", re.I
)
"""How ids begin that people need to ask a provider about."""
_FEWEST_SEAMS = 4
"""Changes between letters and digits in a random part of 16 characters: names and versions have fewer."""


def without_secrets(text: str) -> str:
    """Return the text without the secrets in it."""
    if len(text) < SHORTEST:
        return text
    lower = text.lower()
    counts: Counter[str] = Counter()
    for shape in STORED_SHAPES:
        if any(map(lower.__contains__, shape.marks)):
            text = shape.pattern.sub(_counting(shape, counts), text)
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
    return "<key>" if is_random and has_all and not _KNOWN_IDS.match(token) else token


STORED_SHAPES: tuple[Shape, ...] = (
    Shape("private key", _PRIVATE_KEY, always("<private key>"), marks=("-----begin",)),
    Shape("password", r"(://[^\s/:@]{0,400}:)[^\s/@]{1,400}@", always(r"\1<secret>@"), marks=("://",)),
    Shape("token", r"\beyJ[\w\-]{8,8000}(?:\.[\w\-]{1,8000}){1,4}", always("<token>"), marks=("eyj",)),
    Shape("key", _KEY, always("<key>"), marks=_PREFIXES),
    Shape("token", _BEARER, always(r"\g<bearer><secret>"), marks=("bearer", "basic")),
    Shape("secret", _NAMED, _named, marks=_NAMES),
    Shape("key", _BARE, _bare),
)
