"""How a rule looks, and which rule wins. The rules themselves are tables, one file per provider.

A rule is the core of a sentence or an error code. Read strictly (what a CLI printed, where an agent's
words may stand beside it) the core must be a sentence of its own; read loosely (the body of an error)
it may stand anywhere. Rules are tried stage by stage, since texts name several things at once: "buy
credits or wait" names money and time, and the window decides.
"""

import re
from collections.abc import Iterable
from enum import IntEnum
from functools import cache
from itertools import islice

import msgspec

from paceline.core.signals import Cause, Reach
from paceline.detect.kinds import Kind
from paceline.detect.prefilter import needed_words

MAX_PLACES = 40  # how many places where a rule's core stands are looked at
BEFORE, AFTER = 400, 80  # how far around them the rest of the sentence may stand


class Stage(IntEnum):
    """The order in which rules are tried."""

    EXACT = 0  # a sentence that means this whatever else is said
    PLATFORM = 10
    BILLING = 20
    QUOTA = 30
    OVERLOADED = 40
    RATE = 50
    CODE = 60  # error codes and types: outer wrappers lie more often than sentences
    WEAK = 70
    SIGN = 75  # a retry is under way, and nothing says why
    AUTH = 80


STAGE_OF: dict[Kind, Stage] = {
    "platform": Stage.PLATFORM,
    "billing": Stage.BILLING,
    "quota": Stage.QUOTA,
    "overloaded": Stage.OVERLOADED,
    "rate": Stage.RATE,
    "auth": Stage.AUTH,
    "none": Stage.EXACT,
}


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One way in which a provider says one thing.

    `short_wait`: a quota whose words mean a rate limit if the wait they name is shorter than this;
    `long_wait`: a rate limit whose words mean a quota if the wait is longer.
    `body_only`: words so plain that they count only where all of the text is an error's own.
    `needs`: words without one of which it cannot fire.
    `unless`: the core does not count where this is found in the same text.
    All three patterns are sources, for `pattern`: most runs need few of them.
    """

    name: str
    kind: Kind
    stage: Stage
    strict: str
    loose: str
    needs: frozenset[str]
    body_only: bool = False
    unless: str | None = None
    not_for: frozenset[str] = frozenset()
    window: str | None = None
    reach: Reach | None = None
    cause: Cause | None = None
    short_wait: float | None = None
    long_wait: float | None = None


@cache
def pattern(source: str) -> re.Pattern[str]:
    """What a rule looks for. Compiled when it is first needed: all of them together take as long as the CLI's start."""
    return re.compile(source, re.I | re.M)


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that fired, and the words it fired on."""

    rule: Rule
    sentence: str


# Where a sentence may begin: at a line's start, behind a status, a sign, or as the value of a key.
_LEFT = (
    r"""(?:^|\b[45]\d{2}\s{1,3}|(?-i:ERROR|WARN|WARNING|FATAL)\]?\s{1,3}|[.!?;·>)\]}]\s{1,3}|:\s{0,3}|\s[-–—]\s|[(\[]|[:=({\[,]\s{0,8}b?["']"""
    r"""|\b(?:error|message|msg|err|reason)(?:\.\w{1,20})?=["']?)"""
)
_RIGHT = (
    r"""(?=\s{0,3}(?:$|[.,;:!?)"'}\]·|(\[<\-–—/]"""
    r"""|(?:for|on|in|at|please|try|resets?|and|or|but|with|by|while|again|to|before|until|as|of|set)\b|\d))"""
)


# Words that may lead a provider's sentence to its core ("<4>" in a core: up to four of them) never tell
# what someone thinks, plans or has changed.
_PROSE = (
    r"when|if|once|after|until|unless|whether|how|why|because|so|i|i'm|i'll|i've|we|we'll|let|let's|add|added|adds|fix|fixed|fixes"
    r"|handle|handles|handled|should|could|will|can|say|says|said|docs|tests?|retries|returns?|returned|returning|e\.g\.|like|about|not|never|avoid"
    r"|prevent|ensure|detect|check|catch|implement|configure|simulate|mock|throws?|raises?|example|case|cases|means?|indicates?|suggests?"
)
_LEAD = re.compile(r"<(\d{1,2})>")


def _led(core: str) -> str:
    return _LEAD.sub(rf"(?:(?!(?:{_PROSE})(?![\\w']))[^\\s|]{{1,40}} ){{0,\1}}?", core)


def _spaced(core: str) -> str:
    return core.replace(" ?", r"\s{0,3}").replace(" ", r"\s{1,3}")


def rule(
    name: str,
    kind: Kind,
    *cores: str,
    stage: Stage | None = None,
    anywhere: bool = False,
    open_end: bool = False,
    body_only: bool = False,
    unless: str | None = None,
    not_for: Iterable[str] = (),
    window: str | None = None,
    reach: Reach | None = None,
    cause: Cause | None = None,
    short_wait: float | None = None,
    long_wait: float | None = None,
) -> Rule:
    """A rule from the cores of its sentences. A space in a core is any white space, also a line break.

    `anywhere`: the words are so particular that they count wherever they stand. `open_end`: the
    sentence may go on behind the core. `body_only`: see `Rule`.
    """
    core = "|".join(cores)
    led, bare = (_spaced(text) for text in (_led(core), _LEAD.sub("", core)))
    right = "" if open_end else _RIGHT
    return Rule(
        name=name,
        kind=kind,
        stage=STAGE_OF[kind] if stage is None else stage,
        strict=bare if anywhere else f"{_LEFT}(?:{led}){right}",
        loose=bare,
        needs=needed_words(bare.casefold()),
        body_only=body_only,
        unless=_spaced(unless) if unless else None,
        not_for=frozenset(not_for),
        window=window,
        reach=reach,
        cause=cause,
        short_wait=short_wait,
        long_wait=long_wait,
    )


def first_match(rules: Iterable[Rule], text: str, *, provider: str, loose: bool) -> Match | None:
    """The first rule, in order of stages, that the text satisfies."""
    low = text.casefold()
    for candidate in rules:
        if provider in candidate.not_for or (candidate.body_only and not loose):
            continue
        if not any(word in low for word in candidate.needs):
            continue
        found = pattern(candidate.loose).search(text) if loose else _strictly(candidate, text)
        if found and not (candidate.unless and pattern(candidate.unless).search(text)):
            return Match(rule=candidate, sentence=_sentence(text, found.start(), found.end()))
    return None


def _strictly(candidate: Rule, text: str) -> re.Match[str] | None:
    """The rule as a sentence of its own. Only where its core stands is looked at closely: that keeps time linear."""
    for core in islice(pattern(candidate.loose).finditer(text), MAX_PLACES):
        start, end = max(0, core.start() - BEFORE), core.end() + AFTER
        if found := pattern(candidate.strict).search(text, start, end):
            return found
    return None


def _sentence(text: str, start: int, end: int) -> str:
    """The match with what stands around it on its lines."""
    left = text.rfind("\n", 0, start) + 1
    right = text.find("\n", end)
    return text[max(left, start - 200) : right if 0 <= right < end + 300 else end + 300]
