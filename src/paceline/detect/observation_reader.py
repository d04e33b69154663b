"""From an observation to its signals: structured fields first, then headers, then sentences.

Here: the order of trust, and the making of signals. Never here: a provider's words, which are in the
rule tables, and the ways of writing a time, which are in `resets.py` and `clocks.py`.
"""

import re

import msgspec

from paceline.core.signals import (
    AuthFailed,
    BillingStop,
    Budget,
    Cause,
    Overloaded,
    PlatformLimit,
    QuotaClosed,
    RateLimited,
    Reach,
    Signal,
)
from paceline.detect.event_reader import Event, Saying, is_cut_prose, is_event, say
from paceline.detect.header_reader import (
    HEADER_WORDS,
    HeaderReading,
    Headers,
    field_reset,
    field_status,
    header_names,
    headers_among,
    read_headers,
)
from paceline.detect.observation import NOTHING, Observation, Reading
from paceline.detect.parsing.json_objects import Pairs, documents, scanned
from paceline.detect.parsing.reset_times import Reset, find_resets, in_range, judged
from paceline.detect.parsing.text import cleaned, decoded, glued, shortened
from paceline.detect.prefilter import shortest
from paceline.detect.providers import anthropic as claude_code
from paceline.detect.providers import codex, generic, openai
from paceline.detect.providers import gemini as google
from paceline.detect.providers import openclaw as tools
from paceline.detect.providers import zai as china
from paceline.detect.rules import Kind, Match, Rule, Stage, first_match
from paceline.detect.speaker import all_lines, own_lines, without_meters

ALL_RULES: tuple[Rule, ...] = tuple(
    sorted(
        (
            rule
            for table in (tools, claude_code, codex, google, openai, china, generic)
            for rule in table.RULES
        ),
        key=lambda rule: rule.stage,
    )
)  # fmt: skip

NEEDED_WORDS = shortest(HEADER_WORDS.union(*(rule.needs for rule in ALL_RULES)))
_STATUS_KINDS: dict[int, Kind] = {
    401: "auth",
    402: "billing",
    423: "platform",
    429: "rate",
    503: "overloaded",
    529: "overloaded",
}
LONGEST_BACKOFF = 300.0
MAX_GLUED = 6_000  # a longer text is no message that a narrow terminal broke
_ERROR_IN_200 = re.compile(
    r'"error"\s?:\s?"\w|"?(?:error|event)"?\s?[:=]\s?"?(?:\{|error\b|\[)|"status_code"\s?:\s?[1-9]'
    r"|response\.failed|:HTTP_STATUS/[45]"
)
_ANSWERS = re.compile(r'"(?:text|content)"\s?:\s?"((?:[^"\\]|\\.){8,3000})"')
_ERROR_AS_ANSWER = re.compile(r"\[?(?:API )?Error: .{0,60}\b[45]\d\d\b")
LONGEST_BANNER = 200
_CHINA = "Asia/Shanghai"
_XY = re.compile(r"\(?(\d{1,5}) ?/ ?(\d{1,5})(?: \w{1,12})?[);]")
_LIMIT_NUMBER = re.compile(r"(?:concurrency|limit|max(?:imum)?)[:= ]{1,3}(\d{1,5})\b", re.I)
_WINDOW_WORDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("5h", re.compile(r"\b5[- ]?h(?:ours?|rs?)?\b|five[-_ ]hour|session limit|5\s{0,3}小时", re.I)),
    ("weekly", re.compile(r"weekly|per week|seven[-_ ]day|every week|每周|7-day", re.I)),
    ("daily", re.compile(r"daily|per[- ]day|perday|\btpd\b|\brpd\b|tomorrow|24-hour", re.I)),
    ("monthly", re.compile(r"monthly|per month|this month|billing cycle", re.I)),
)
_MODEL_WORDS = re.compile(
    r"\b(?:opus|sonnet|haiku|fable)\b[^\n]{0,12} limit|(?:this|selected|specific to this|that) model"
    r"|limit (?:reached )?for (?!your|the|organization|\d)[\w./`-]{3,60}"
    r"|rate limit reached for (?:model )?`?(?!organization|default|requests)\w",
    re.I,
)
_CAUSES: tuple[tuple[Cause, re.Pattern[str]], ...] = (
    ("concurrency", re.compile(r"concurren|parallel|simultaneous", re.I)),
    ("starts", re.compile(r"increased too quickly|ramp", re.I)),
    ("tokens", re.compile(r"tokens? per|\btpm\b|too many tokens|token rate limit|input_token|tokens allowed", re.I)),
    ("requests", re.compile(r"requests? per|\brpm\b|queries per|too many requests|requests rate|calls per", re.I)),
)


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """Where and when something was said, and the sentences to read it by."""

    provider: str
    seen_at: float
    tz: str
    rules: tuple[Rule, ...] = ALL_RULES


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known when the decision is made. `loose`: all of the text is an error's own."""

    scene: Scene
    text: str
    loose: bool
    pairs: Pairs = []
    headers: HeaderReading = HeaderReading()
    status: int | None = None
    default: Kind | None = None
    reset: Reset | None = None
    rule: str = ""


def hints(text: str) -> bool:
    """Whether a text is worth reading at all: without any word that a rule needs, none can fire."""
    low = text.casefold()
    return any(word in low for word in NEEDED_WORDS)


def explain(observation: Observation, *, rules: tuple[Rule, ...] = ALL_RULES) -> Reading:
    """The signals of an observation and the names of the rules that fired. Never raises.

    `rules` are the sentences to read by, in the order of their stages: fewer than all to see what each is worth.
    """
    try:
        return _explain(observation, rules)
    except Exception:  # noqa: BLE001 - the promise is to survive any input whatever; silence is the safe answer
        return NOTHING


def _explain(seen: Observation, rules: tuple[Rule, ...]) -> Reading:
    provider = decoded(seen.provider).strip().lower()
    if provider == "tool-output":
        return NOTHING
    scene = Scene(provider=provider, seen_at=_sane_time(seen.seen_at), tz=decoded(seen.tz) or "UTC", rules=rules)
    text = shortened(decoded(seen.text))
    status = seen.status if isinstance(seen.status, int) and not isinstance(seen.status, bool) else None
    headers = header_names(seen.headers)
    is_body = seen.channel == "http"
    if not is_body:
        events = [document for document in documents(text) if is_event(document)] if "{" in text else []
        if events and not _quoted_body(text, events):
            return _combined([read_event_in(scene, event, status=status) for event in events])
        if is_cut_prose(text):
            return NOTHING
    if status is not None and status < 400 and not _carries_error(text):
        return _read_healthy(scene, text, headers, status)
    plain = cleaned(text)
    if not headers and status is None and not (hints(plain) or hints(glued(plain))):
        return NOTHING
    return _decide(_heard_in_text(scene, plain, headers, status, is_body=is_body))


def _heard_in_text(scene: Scene, plain: str, headers: Headers, status: int | None, *, is_body: bool) -> Heard:
    refused = status is not None and status >= 400
    is_loose = is_body or refused
    pairs = scanned(plain if is_loose else own_lines(plain))
    all_headers = {**headers_among(pairs), **headers}
    stated = status if refused else field_status(pairs)
    return Heard(
        scene=scene,
        text=plain,
        loose=is_loose,
        pairs=pairs,
        headers=read_headers(all_headers, status=stated, seen_at=scene.seen_at),
        status=stated if is_loose else status,
    )


def read_event_in(scene: Scene, event: Event, *, status: int | None = None) -> Reading:
    """The reading of one structured event."""
    said = say(event)
    if said is None:
        return NOTHING
    if said.kind is None and not (said.budgets and not said.text):
        return _decide(_heard_in_event(scene, said, status))
    signals: list[Signal] = list(said.budgets)
    if said.kind is not None:
        reach: Reach | None = "model" if said.model else None
        signals[:0] = _signals(
            said.kind, said.reset, scene.seen_at, reach=reach, window=said.window, source="field", text=said.text
        )
    rules = tuple(filter(None, (said.rule, said.reset.rule if said.reset else "")))
    return Reading(signals=signals, rules=rules)


def _heard_in_event(scene: Scene, said: Saying, status: int | None) -> Heard:
    known = said.status or status
    return Heard(
        scene=scene,
        text=cleaned(shortened(said.text)),
        loose=True,
        pairs=said.pairs,
        headers=read_headers(headers_among(said.pairs), status=known or 429, seen_at=scene.seen_at),
        status=known,
        default=said.default,
        reset=said.reset,
        rule=said.rule,
    )


def _combined(readings: list[Reading]) -> Reading:
    """Of several events the last one that says something about capacity; budgets of all."""
    rules = tuple(rule for reading in readings for rule in reading.rules)
    informative = [signal for reading in readings for signal in reading.signals if isinstance(signal, Budget)]
    for reading in reversed(readings):
        spoken = [signal for signal in reading.signals if not isinstance(signal, Budget)]
        if spoken:
            return Reading(signals=[*spoken, *informative], rules=rules)
    return Reading(signals=list(informative), rules=rules)


def _sane_time(value: object) -> float:
    number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
    return number if in_range(number) else 0.0


def _quoted_body(text: str, events: list[Event]) -> bool:
    """Whether the only event is the body of an API's answer, quoted in a line of the CLI's own."""
    return len(events) == 1 and events[0].get("type") == "error" and not text.lstrip().startswith("{")


def _carries_error(text: str) -> bool:
    """Whether an answer of status 200 holds an error after all: in a stream, or as its only content."""
    return bool(_ERROR_IN_200.search(text[:4000]))


def _read_healthy(scene: Scene, text: str, headers: Headers, status: int) -> Reading:
    """A successful answer: what its headers say is left, or a subscription's banner that a proxy passed on as one."""
    healthy = read_headers(headers, status=status, seen_at=scene.seen_at)
    answers = _ANSWERS.findall(text[:4000])
    if len(answers) == 1 and (reading := _read_answer(scene, answers[0])).signals:
        return Reading(signals=[*reading.signals, *healthy.budgets], rules=reading.rules)
    return Reading(signals=list(healthy.budgets), rules=healthy.rules)


def _read_answer(scene: Scene, answer: str) -> Reading:
    """The only text of an answer, if it is nothing but an error or a banner with its reset."""
    text = cleaned(answer)
    if _ERROR_AS_ANSWER.match(text):
        return _decide(Heard(scene=scene, text=text, loose=True, pairs=scanned(text)))
    reading = _decide(Heard(scene=scene, text=text, loose=False)) if len(text) <= LONGEST_BANNER else NOTHING
    closed = any(isinstance(signal, QuotaClosed) and signal.resets_at is not None for signal in reading.signals)
    return reading if closed else NOTHING


# --- the decision ------------------------------------------------------------------------------


def _decide(heard: Heard) -> Reading:
    text = without_meters(heard.text)
    text = all_lines(text) if heard.loose else own_lines(text)
    match = _match(text, heard)
    kind, fired = _kind(match, heard)
    if kind is None or kind == "none":
        return Reading(signals=list(heard.headers.budgets), rules=(*fired, *heard.headers.rules) if fired else ())
    if match and kind == match.rule.kind:
        kind = _by_size(text, match.rule, heard)
    reset = None if kind == "billing" else _reset(text, kind, heard)
    sentence = match.sentence if match else text[:400]
    window = (match.rule.window if match else None) or heard.headers.window or _window(text)
    reach = (match.rule.reach if match else None) or heard.headers.reach or _reach(kind, sentence)
    cause = (match.rule.cause if match else None) or _cause(text)
    source = "text" if match and heard.headers.kind is None else "header"
    signals = _signals(
        kind, reset, heard.scene.seen_at, window=window, reach=reach, cause=cause, source=source, text=sentence
    )
    rules = (*filter(None, (heard.rule,)), *fired, *((reset.rule,) if reset else ()))
    return Reading(signals=[*signals, *heard.headers.budgets], rules=tuple(dict.fromkeys(rules)))


def _match(text: str, heard: Heard) -> Match | None:
    if not text.strip():
        return None
    found = first_match(heard.scene.rules, text, provider=heard.scene.provider, loose=heard.loose)
    joined = glued(text)
    if joined == text or len(text) > MAX_GLUED:
        return found
    # A narrow terminal may have broken the words that tell: of two readings the more particular one counts.
    other = first_match(heard.scene.rules, joined, provider=heard.scene.provider, loose=heard.loose)
    return other if other and (found is None or other.rule.stage < found.rule.stage) else found


def _kind(match: Match | None, heard: Heard) -> tuple[Kind | None, tuple[str, ...]]:
    """Headers that name a window decide; then sentences; then what the status alone says."""
    if heard.headers.kind is not None and not (match and match.rule.kind == "billing"):
        return heard.headers.kind, heard.headers.rules
    if match is not None:
        return match.rule.kind, (match.rule.name,)
    if heard.default is not None:
        return heard.default, ("event.error-name",)
    if heard.status in _STATUS_KINDS:
        return _STATUS_KINDS[heard.status], (f"status.{heard.status}",)
    return None, ()


def _by_size(text: str, rule: Rule, heard: Heard) -> Kind:
    """The same words for a burst and for a spent window: only the length of the wait tells."""
    if rule.short_wait is None and rule.long_wait is None and rule.stage is not Stage.BILLING:
        return rule.kind
    stated = [reset for reset in _resets(text, heard) if not reset.own]
    longest = max((reset.delay(heard.scene.seen_at) for reset in stated), default=None)
    if longest is None:
        return rule.kind
    if rule.stage is Stage.BILLING:
        # "Buy credits, or wait until 5pm": what clears by itself is a window.
        waits = [
            reset for reset in stated if reset.source == "text" and reset.delay(heard.scene.seen_at) >= LONGEST_BACKOFF
        ]
        return "quota" if waits else rule.kind
    if rule.short_wait is not None and longest < rule.short_wait:
        return "rate"
    return "quota" if rule.long_wait is not None and longest >= rule.long_wait else rule.kind


def _reset(text: str, kind: Kind, heard: Heard) -> Reset | None:
    # The client's own backoff says nothing about when a window reopens, unless it is so long that it
    # can only be the provider's.
    usable = [
        reset
        for reset in _resets(text, heard)
        if not (reset.own and kind == "quota" and reset.delay(heard.scene.seen_at) < LONGEST_BACKOFF)
    ]
    return judged(usable[0], heard.scene.seen_at) if usable and kind != "auth" else None


def _resets(text: str, heard: Heard) -> list[Reset]:
    """All resets that are stated, the most trusted first."""
    structured = field_reset(heard.pairs, seen_at=heard.scene.seen_at, tz=heard.scene.tz) or heard.headers.reset
    candidates = [structured] if structured else []
    zone = _zone(heard)
    candidates += _found_resets(text, seen_at=heard.scene.seen_at, tz=zone)
    if heard.reset is not None:
        candidates.append(heard.reset)
    return [reset for reset in candidates if in_range(reset.time(heard.scene.seen_at))]


def _found_resets(text: str, *, seen_at: float, tz: str) -> list[Reset]:
    """Those in the text as it stands; or with its lines joined, if a time or its zone was broken in two."""
    found = find_resets(text, seen_at=seen_at, tz=tz)
    joined = find_resets(glued(text), seen_at=seen_at, tz=tz) if glued(text) != text else []
    surest = max((reset.confidence for reset in found), default=0.0)
    return joined if any(reset.confidence > surest for reset in joined) else found


def _zone(heard: Heard) -> str:
    """Z.ai and other Chinese services print China time without saying so."""
    chinese = heard.scene.provider in ("zai-api", "zai") or re.search(
        r"[\u4e00-\u9fff]{3}|\[1308\]|\"code\":\s?\"?1308", heard.text
    )
    return _CHINA if chinese and not re.search(r"[\u3040-\u30ff]", heard.text) else heard.scene.tz


def _window(text: str) -> str | None:
    named = [name for name, words in _WINDOW_WORDS if words.search(text)]
    return named[0] if len(named) == 1 else None


def _reach(kind: Kind, sentence: str) -> Reach | None:
    if kind == "overloaded":
        return "provider"
    if kind in ("quota", "rate") and _MODEL_WORDS.search(sentence):
        return "model"
    return "account" if kind in ("quota", "billing", "auth") else None


def _cause(text: str) -> Cause | None:
    return next((cause for cause, words in _CAUSES if words.search(text)), None)


def _signals(
    kind: Kind,
    reset: Reset | None,
    seen_at: float,
    *,
    window: str | None = None,
    reach: Reach | None = None,
    cause: Cause | None = None,
    source: str = "text",
    text: str = "",
) -> list[Signal]:
    confidence = reset.confidence if reset else {"field": 0.9, "header": 0.9}.get(source, 0.8)
    origin = reset.source if reset else source
    delay = reset.delay(seen_at) if reset else None
    detail = " ".join(text.split())[:300] or None
    match kind:
        case "quota":
            at = reset.time(seen_at) if reset else None
            return [
                QuotaClosed(resets_at=at, window=window, reach=reach or "account", confidence=confidence, source=origin)
            ]
        case "rate":
            return [RateLimited(retry_after=delay, cause=cause, reach=reach, confidence=confidence, source=origin)]
        case "overloaded":
            return [Overloaded(retry_after=delay, reach=reach or "provider", confidence=confidence, source=origin)]
        case "platform":
            in_use, limit = _numbers(text)
            return [
                PlatformLimit(limit=limit, in_use=in_use, retry_after=delay, reach=reach, confidence=0.9, source=source)
            ]
        case "billing":
            return [BillingStop(detail=detail, reach=reach or "account", confidence=0.9, source=source)]
        case "auth":
            return [AuthFailed(detail=detail, reach="account", confidence=0.9, source=source)]
    return []


def _numbers(text: str) -> tuple[int | None, int | None]:
    """(in use, limit) of a cap: `(5/5)`, `Limit: 1`, `concurrency: 1`. A limit of 0 is no limit."""
    if pair := _XY.search(text):
        return int(pair[1]), int(pair[2]) or None
    if number := _LIMIT_NUMBER.search(text):
        return None, int(number[1]) or None
    return None, None
