"""The decision about one observation: which limit it is, when it ends and whom it reaches.

Here: the order of trust (headers that decide, sentences, error names, the status) and the making of signals. Never
here: a provider's words, which are in its rules, and the ways of writing a time (`times.py`).
"""

import re

import msgspec

from paceline.core.signals import (
    AuthFailed,
    BillingStop,
    Cause,
    Overloaded,
    PlatformLimit,
    QuotaClosed,
    RateLimited,
    Reach,
    Signal,
    Unreachable,
)
from paceline.detect.fields import field_reset
from paceline.detect.grammar.statements import HOUR, Statement
from paceline.detect.json_objects import Pairs
from paceline.detect.observation import Kind, Reading, kind_of_status
from paceline.detect.own_lines import all_lines, own_lines, without_meters
from paceline.detect.provider import HeaderReading, ProviderSet
from paceline.detect.rules import NO_LOGIN, STAGE_OF, Match, Meaning, Stage, sentence_around
from paceline.detect.text import join_lines, reason_line
from paceline.detect.times import PLAUSIBLE, Reset, discount_implausible, find_resets, in_range

LONGEST_BACKOFF = 300.0
"""Seconds. No client waits longer on its own account, so a longer wait can only be the provider's."""
MAX_GLUED = 6_000
"""Characters. A longer text is no message that a narrow terminal broke; joining it would only cost time."""
_XY = re.compile(r"\(?(\d{1,5}) ?/ ?(\d{1,5})(?: \w{1,12})?[);]")
_LIMIT_NUMBER = re.compile(r"(?:concurrency|limit|max(?:imum)?)[:= ]{1,3}(\d{1,5})\b", re.I)
_WINDOW_WORDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("5h", re.compile(r"\b5[- ]?h(?:ours?|rs?)?\b|five[-_ ]hour|session limit|5\s{0,3}小时", re.I)),
    ("weekly", re.compile(r"weekly|per week|seven[-_ ]day|every week|每周|7-day", re.I)),
    ("daily", re.compile(r"daily|per[- ]day|perday|\btpd\b|\brpd\b|tomorrow|24-hour", re.I)),
    ("monthly", re.compile(r"monthly|per month|this month|billing cycle", re.I)),
)
_CAUSES: tuple[tuple[Cause, re.Pattern[str]], ...] = (
    ("concurrency", re.compile(r"concurren|parallel|simultaneous", re.I)),
    ("starts", re.compile(r"increased too quickly|ramp", re.I)),
    ("tokens", re.compile(r"tokens? per|\btpm\b|too many tokens|token rate limit|input_token|tokens allowed", re.I)),
    ("requests", re.compile(r"requests? per|\brpm\b|queries per|too many requests|requests rate|calls per", re.I)),
)


_REFUSED = re.compile(r"error|exception|fail|denied|unauth|oauth|api\b|http|status|\b[45]\d\d\b|provider|llm", re.I)
"""On a line before the words of a refused login: any program may refuse any key, and any page may speak of it."""
_BARE_RATE = Meaning(name="status.429", kind="rate", stage=Stage.WEAK, long_wait=HOUR)
"""A refusal without words: how long it asks to wait says what it is."""


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """Where and when something was printed, and the providers to read it by."""

    provider: str
    seen_at: float
    tz: str
    providers: ProviderSet


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known when the decision is made."""

    scene: Scene
    text: str
    is_loose: bool
    """Whether all of the text is an error's own, so that words count wherever they are."""
    pairs: Pairs = []
    headers: HeaderReading = HeaderReading()
    status: int | None = None
    default: Kind | None = None
    reset: Reset | None = None
    rule: str = ""

    @property
    def is_answered(self) -> bool:
        """Whether somebody answered: then nothing was unreachable, whatever the words are."""
        return self.status is not None or self.headers != HeaderReading()


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """A limit with everything that was found out about it."""

    kind: Kind
    reset: Reset | None = None
    window: str | None = None
    reach: Reach | None = None
    cause: Cause | None = None
    source: str = "text"
    text: str = ""
    advice: str | None = None
    """What a person can do about it, where the words do not say it."""
    is_missing: bool = False
    """Whether the CLI itself found no login."""


def decide(evidence: Evidence) -> Reading:
    """Return the signals that the evidence means, and the names of the rules that decided."""
    text = without_meters(evidence.text)
    text = all_lines(text) if evidence.is_loose else own_lines(text)
    headers = evidence.headers
    match = _match(text, evidence)
    kind, fired = _kind(match, evidence)
    if kind is None or kind == "none":
        return Reading(signals=list(headers.budgets), rules=(*fired, *headers.rules) if fired else ())
    if match and kind == match.rule.kind and kind != "unreachable":
        kind = _by_size(text, match.rule, evidence)
    elif kind == "rate" and evidence.headers.kind is None:
        kind = _by_size(text, _BARE_RATE, evidence)
    reset = None if kind == "billing" else _reset(text, kind, evidence)
    sentence = match.sentence if match else text[:400]
    diagnosis = Diagnosis(
        kind=kind,
        reset=reset,
        window=(match.rule.window if match else None) or headers.window or _window(text),
        reach=(match.rule.reach if match else None)
        or headers.reach
        or _reach(kind, sentence, evidence.scene.providers),
        cause=(match.rule.cause if match else None) or _cause(text),
        source="text" if match and headers.kind is None else "header",
        text=sentence,
        advice=match.rule.advice if match and match.rule.kind == kind else None,
        is_missing=match is not None and match.rule.name == NO_LOGIN,
    )
    rules = (*filter(None, (evidence.rule,)), *fired, *((reset.rule,) if reset else ()))
    signals = make_signals(diagnosis, evidence.scene.seen_at)
    return Reading(signals=[*signals, *headers.budgets], rules=tuple(dict.fromkeys(rules)))


def _match(text: str, evidence: Evidence) -> Match | None:
    if not text.strip():
        return None
    found = _first_match(text, evidence)
    joined = join_lines(text)
    if joined == text or len(text) > MAX_GLUED:
        return found
    # A narrow terminal may have broken the decisive words: of two matches the one of the earlier stage counts.
    other = _first_match(joined, evidence)
    return other if other and (found is None or other.rule.stage < found.rule.stage) else found


def _first_match(text: str, evidence: Evidence) -> Match | None:
    """Return the rule or the statement of the earliest stage; of one stage the rule, which knows the provider."""
    scene, is_loose = evidence.scene, evidence.is_loose
    found = scene.providers.rule_table.first_match(text, provider=scene.provider, loose=is_loose)
    if found is not None and found.rule.stage < Stage.PLATFORM:
        return found
    if found is not None and not is_loose and _is_of_another(found, scene.providers):
        found = None
    stated = min(
        (statement for statement in scene.providers.grammar.statements(text, is_loose=is_loose)),
        key=_stage_of,
        default=None,
    )
    if stated is None or (found is not None and found.rule.stage <= _stage_of(stated)):
        return found
    meaning = Meaning(
        name=f"grammar.{stated.form}",
        kind=stated.kind,
        stage=_stage_of(stated),
        cause=stated.cause,
        short_wait=stated.short_wait,
        long_wait=stated.long_wait,
    )
    return Match(rule=meaning, sentence=sentence_around(text, stated.start, stated.end))


def _is_of_another(found: Match, providers: ProviderSet) -> bool:
    """Return whether the line that a rule found is about the login or the limit of something else."""
    if found.rule.kind == "auth":
        head, colon, _ = found.sentence.partition(": ")
        said_before = found.head.strip() or (head if colon else "")
        return bool(said_before) and not _REFUSED.search(said_before)
    return found.rule.kind != "unreachable" and providers.grammar.names_another_owner(found.sentence)


def _stage_of(statement: Statement) -> Stage:
    if statement.kind == "none":
        return Stage.SIZE
    if statement.is_vague:
        return Stage.WEAK
    if statement.is_code:
        return Stage.CODE
    return Stage.METERED if statement.is_metered else STAGE_OF[statement.kind]


def _kind(match: Match | None, evidence: Evidence) -> tuple[Kind | None, tuple[str, ...]]:
    """Return the kind and the rules that decided: headers that name a window, sentences, error names, the status."""
    if evidence.headers.kind is not None and not (match and match.rule.kind == "billing"):
        return evidence.headers.kind, evidence.headers.rules
    if match is not None and not _is_overruled(match, evidence):
        return match.rule.kind, (match.rule.name,)
    if evidence.default is not None:
        return evidence.default, ("event.error-name",)
    if (kind := kind_of_status(evidence.status)) is not None:
        return kind, (f"status.{evidence.status}",)
    return None, ()


def _is_overruled(match: Match, evidence: Evidence) -> bool:
    """Return whether the status says more: that somebody answered, or that the size is one of money."""
    if match.rule.kind == "unreachable":
        return evidence.is_answered
    return match.rule.stage is Stage.SIZE and kind_of_status(evidence.status) == "billing"


def _by_size(text: str, rule: Meaning, evidence: Evidence) -> Kind:
    """Return the kind of words that stand for a burst and for a spent window alike: the length of the wait decides."""
    if rule.short_wait is None and rule.long_wait is None and rule.stage is not Stage.BILLING:
        return rule.kind
    stated = [reset for reset in _resets(text, evidence) if not reset.own]
    longest = max((reset.delay(evidence.scene.seen_at) for reset in stated), default=None)
    if longest is None:
        return rule.kind
    if rule.stage is Stage.BILLING:
        # "Buy credits, or wait until 5pm": what clears by itself is a window.
        waits = [
            reset
            for reset in stated
            if reset.source in ("text", "field") and reset.delay(evidence.scene.seen_at) >= LONGEST_BACKOFF
        ]
        return "quota" if waits else rule.kind
    if rule.short_wait is not None and longest < rule.short_wait:
        return "rate"
    return "quota" if rule.long_wait is not None and rule.long_wait <= longest <= PLAUSIBLE else rule.kind


def _reset(text: str, kind: Kind, evidence: Evidence) -> Reset | None:
    # The client's own backoff does not state when a window reopens, unless it is so long that it can only be the
    # provider's.
    usable = [
        reset
        for reset in _resets(text, evidence)
        if not (reset.own and kind == "quota" and reset.delay(evidence.scene.seen_at) < LONGEST_BACKOFF)
    ]
    return discount_implausible(usable[0], evidence.scene.seen_at) if usable and kind != "auth" else None


def _resets(text: str, evidence: Evidence) -> list[Reset]:
    """Return all resets that are stated, the most trusted first."""
    scene = evidence.scene
    structured = field_reset(evidence.pairs, seen_at=scene.seen_at) or evidence.headers.reset
    candidates = [structured] if structured else []
    zone = scene.providers.zone_of(scene.provider, evidence.text, default=scene.tz)
    candidates += _resets_in_text(text, seen_at=scene.seen_at, tz=zone)
    if evidence.reset is not None:
        candidates.append(evidence.reset)
    return [reset for reset in candidates if in_range(reset.time(scene.seen_at))]


def _resets_in_text(text: str, *, seen_at: float, tz: str) -> list[Reset]:
    """Return the resets in the text, or in its joined lines if a time or its zone was broken in two."""
    found = find_resets(text, seen_at=seen_at, tz=tz)
    joined = find_resets(join_lines(text), seen_at=seen_at, tz=tz) if join_lines(text) != text else []
    surest = max((reset.confidence for reset in found), default=0.0)
    return joined if any(reset.confidence > surest for reset in joined) else found


def _window(text: str) -> str | None:
    named = [name for name, words in _WINDOW_WORDS if words.search(text)]
    return named[0] if len(named) == 1 else None


def _reach(kind: Kind, sentence: str, providers: ProviderSet) -> Reach | None:
    if kind == "overloaded":
        return "provider"
    if kind in ("quota", "rate") and providers.model_limit.search(sentence):
        return "model"
    return "account" if kind in ("quota", "billing", "auth") else None


def _cause(text: str) -> Cause | None:
    return next((cause for cause, words in _CAUSES if words.search(text)), None)


def make_signals(diagnosis: Diagnosis, seen_at: float) -> list[Signal]:
    """Return a diagnosis as signals. `none` gives no signal."""
    reset, reach, source = diagnosis.reset, diagnosis.reach, diagnosis.source
    confidence = reset.confidence if reset else {"field": 0.9, "header": 0.9}.get(source, 0.8)
    origin = reset.source if reset else source
    delay = reset.delay(seen_at) if reset else None
    detail = reason_line(diagnosis.text)
    if detail and diagnosis.advice:
        detail = f"{detail.rstrip('.')}: {diagnosis.advice}"
    match diagnosis.kind:
        case "quota":
            at, reach = reset.time(seen_at) if reset else None, reach or "account"
            window = diagnosis.window
            return [QuotaClosed(resets_at=at, window=window, reach=reach, confidence=confidence, source=origin)]
        case "rate":
            cause = diagnosis.cause
            return [RateLimited(retry_after=delay, cause=cause, reach=reach, confidence=confidence, source=origin)]
        case "overloaded":
            return [Overloaded(retry_after=delay, reach=reach or "provider", confidence=confidence, source=origin)]
        case "unreachable":
            return [Unreachable(reach=reach, confidence=confidence, source=source)]
        case "platform":
            in_use, limit = _numbers(diagnosis.text)
            return [
                PlatformLimit(limit=limit, in_use=in_use, retry_after=delay, reach=reach, confidence=0.9, source=source)
            ]
        case "billing":
            return [BillingStop(detail=detail, reach=reach or "account", confidence=0.9, source=source)]
        case "auth":
            missing = diagnosis.is_missing
            return [AuthFailed(detail=detail, is_missing=missing, reach="account", confidence=0.9, source=source)]
    return []


def _numbers(text: str) -> tuple[int | None, int | None]:
    """Return (in use, limit) of a cap: `(5/5)`, `Limit: 1`, `concurrency: 1`. A limit of 0 is no limit."""
    if pair := _XY.search(text):
        return int(pair[1]), int(pair[2]) or None
    if number := _LIMIT_NUMBER.search(text):
        return None, int(number[1]) or None
    return None, None
