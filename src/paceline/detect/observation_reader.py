"""From an observation to its signals: structured events first, then the text with its headers and fields.

Here: what an observation is (an event, a body, a screen, a healthy answer), whether an event is an error, prose or
bookkeeping, and the order of trust: headers that decide (a provider's own decision, then a wait, then an empty bucket),
sentences, error names, the status. Never here: the words, events and headers of one provider, and the ways of writing a
time (`times.py`).
"""

import re
from collections.abc import Iterable

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
    Unreachable,
)
from paceline.detect.fields import (
    Bucket,
    Headers,
    field_reset,
    field_status,
    normalize_headers,
    read_buckets,
    retry_after,
)
from paceline.detect.json_objects import Event, find_documents, scan_pairs
from paceline.detect.observation import HOUR, NOTHING, Kind, Meaning, Observation, Reading, Stage, kind_of_status
from paceline.detect.provider import (
    NO_LOGIN,
    LimitReading,
    Match,
    ProviderSet,
    error_reading,
    sentence_around,
)
from paceline.detect.text import (
    HIDDEN,
    SOFT,
    decode_text,
    join_lines,
    make_readable,
    own_lines,
    reason_line,
    shorten,
    with_blanks_for_shown_output,
    without_meters,
)
from paceline.detect.times import PLAUSIBLE, Reset, discount_implausible, find_resets, in_range

# --- which limit it is, when it ends and whom it reaches ----------------------------------------

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


NO_HEADERS = LimitReading()


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """Where and when something was printed, and the providers to read it by."""

    provider: str
    seen_at: float
    tz: str
    providers: ProviderSet


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known when the decision is made."""

    scene: Scene
    found: LimitReading
    is_loose: bool
    """Whether all of the text is an error's own, so that words count wherever they are."""
    headers: LimitReading = NO_HEADERS


def decide(evidence: Evidence) -> Reading:
    """Return the signals that the evidence means, and the names of the rules that decided."""
    text = without_meters(evidence.found.text)
    text = text.replace(SOFT, "") if evidence.is_loose else own_lines(text)
    headers = evidence.headers
    match = _match(text, evidence)
    kind, fired = _kind(match, evidence)
    if kind is None or kind == "none":
        return Reading(signals=list(headers.budgets), rules=_named(*fired, headers.rule) if fired else ())
    if match and kind == match.rule.kind and kind != "unreachable":
        kind = _by_size(text, match.rule, evidence)
    elif kind == "rate" and evidence.headers.kind is None:
        kind = _by_size(text, _BARE_RATE, evidence)
    reset = None if kind == "billing" else _reset(text, kind, evidence)
    sentence, rule = (match.sentence, match.rule) if match else (text[:400], _BARE_RATE)
    meant = LimitReading(
        kind=kind,
        reset=reset,
        window=rule.window or headers.window or _window(text),
        reach=rule.reach or headers.reach or _reach(kind, sentence, evidence.scene.providers),
        cause=rule.cause or next((cause for cause, words in _CAUSES if words.search(text)), None),
        text=sentence,
    )
    signals = make_signals(
        meant,
        evidence.scene.seen_at,
        source="text" if match and headers.kind is None else "header",
        advice=rule.advice if rule.kind == kind else None,
        is_missing=rule.name == NO_LOGIN,
    )
    rules = _named(evidence.found.rule, *fired, reset.rule if reset else "")
    return Reading(signals=[*signals, *headers.budgets], rules=tuple(dict.fromkeys(rules)))


def _named(*rules: str) -> tuple[str, ...]:
    return tuple(filter(None, rules))


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
    found = scene.providers.first_match(text, provider=scene.provider, loose=is_loose)
    if found is not None and found.rule.stage < Stage.PLATFORM:
        return found
    if found is not None and not is_loose and _is_of_another(found, scene.providers):
        found = None
    statements = scene.providers.grammar.statements(text, is_loose=is_loose)
    stated = min(statements, key=lambda statement: statement.stage, default=None)
    if stated is None or (found is not None and found.rule.stage <= stated.stage):
        return found
    return Match(rule=stated, sentence=sentence_around(text, stated.start, stated.end))


def _is_of_another(found: Match, providers: ProviderSet) -> bool:
    """Return whether the line that a rule found is about the login or the limit of something else."""
    if found.rule.kind == "auth":
        head, colon, _ = found.sentence.partition(": ")
        said_before = found.head.strip() or (head if colon else "")
        return bool(said_before) and not _REFUSED.search(said_before)
    return found.rule.kind != "unreachable" and providers.grammar.names_another_owner(found.sentence)


def _kind(match: Match | None, evidence: Evidence) -> tuple[Kind | None, tuple[str, ...]]:
    """Return the kind and the rules that decided: headers that name a window, sentences, error names, the status."""
    if evidence.headers.kind is not None and not (match and match.rule.kind == "billing"):
        return evidence.headers.kind, _named(evidence.headers.rule)
    if match is not None and not _is_overruled(match, evidence):
        return match.rule.kind, (match.rule.name,)
    if evidence.found.default is not None:
        return evidence.found.default, ("event.error-name",)
    if (kind := kind_of_status(evidence.found.status)) is not None:
        return kind, (f"status.{evidence.found.status}",)
    return None, ()


def _is_overruled(match: Match, evidence: Evidence) -> bool:
    """Return whether the status says more: that somebody answered, or that the size is one of money."""
    if match.rule.kind == "unreachable":
        return evidence.found.status is not None or evidence.headers != NO_HEADERS
    return match.rule.stage is Stage.SIZE and kind_of_status(evidence.found.status) == "billing"


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
    structured = field_reset(evidence.found.pairs, seen_at=scene.seen_at) or evidence.headers.reset
    candidates = [structured] if structured else []
    zone = scene.providers.zone_of(scene.provider, evidence.found.text, default=scene.tz)
    candidates += _resets_in_text(text, seen_at=scene.seen_at, tz=zone)
    if evidence.found.reset is not None:
        candidates.append(evidence.found.reset)
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


def make_signals(
    found: LimitReading, seen_at: float, *, source: str = "field", advice: str | None = None, is_missing: bool = False
) -> list[Signal]:
    """Return a limit as signals. `none` gives no signal.

    `advice`: what a person can do about it, where the words do not say it. `is_missing`: the CLI found no login.
    """
    reset, reach = found.reset, found.reach
    confidence = reset.confidence if reset else {"field": 0.9, "header": 0.9}.get(source, 0.8)
    origin = reset.source if reset else source
    delay = reset.delay(seen_at) if reset else None
    detail = reason_line(found.text)
    if detail and advice:
        detail = f"{detail.rstrip('.')}: {advice}"
    match found.kind:
        case "quota":
            at, reach = reset.time(seen_at) if reset else None, reach or "account"
            window = found.window
            return [QuotaClosed(resets_at=at, window=window, reach=reach, confidence=confidence, source=origin)]
        case "rate":
            cause = found.cause
            return [RateLimited(retry_after=delay, cause=cause, reach=reach, confidence=confidence, source=origin)]
        case "overloaded":
            return [Overloaded(retry_after=delay, reach=reach or "provider", confidence=confidence, source=origin)]
        case "unreachable":
            return [Unreachable(reach=reach, confidence=confidence, source=source)]
        case "platform":
            in_use, limit = _numbers(found.text)
            return [
                PlatformLimit(limit=limit, in_use=in_use, retry_after=delay, reach=reach, confidence=0.9, source=source)
            ]
        case "billing":
            return [BillingStop(detail=detail, reach=reach or "account", confidence=0.9, source=source)]
        case "auth":
            return [AuthFailed(detail=detail, is_missing=is_missing, reach="account", confidence=0.9, source=source)]
    return []


def _numbers(text: str) -> tuple[int | None, int | None]:
    """Return (in use, limit) of a cap: `(5/5)`, `Limit: 1`, `concurrency: 1`. A limit of 0 is no limit."""
    if pair := _XY.search(text):
        return int(pair[1]), int(pair[2]) or None
    if number := _LIMIT_NUMBER.search(text):
        return None, int(number[1]) or None
    return None, None


# --- what an observation is ---------------------------------------------------------------------

# Types of events that hold words of the model, a tool or the user, or mere bookkeeping.
_PROSE_TYPES = re.compile(
    r"assistant|user|message|text|reasoning|thinking|tool\w*|item\.\w+|stream_event|content\w*|function\w*|response_item"
    r"|(?:assistant|user|tool|session|turn|thread|model|step|system|hook|agent|permission)[._/][\w.]*|step\w*|turn|init|system|summary|delta|file|patch",
    re.I,
)
# Types that say of themselves that a call of the model failed, in any CLI. A failed tool does not count.
_FAILED_TYPES = re.compile(
    r"(?:turn|session|response|run|request|api|llm|model|agent|chat|completion|stream)[._/-]?(?:error|failed|failure)",
    re.I,
)
_PROSE_HEAD = re.compile(
    r'\s{0,40}\{\s{0,8}"type"\s?:\s?"(?P<type>[\w.\-]{1,40})"|\s{0,40}"(?P<key>new_string|old_string|content|text|result|command|aggregated_output|stdout|input|description|thinking)"\s?:'
)


def is_cut_prose(text: str, providers: ProviderSet) -> bool:
    """Return whether a piece of an event, too broken to be parsed, begins as words of the model, a tool or the user."""
    head = _PROSE_HEAD.match(text[:400])
    if head is None:
        return False
    if head["key"]:
        return True
    return not _is_error(head["type"], providers) and bool(_PROSE_TYPES.fullmatch(head["type"]))


def is_event(document: Event, providers: ProviderSet) -> bool:
    """Return whether a JSON object is an event of an agent CLI, rather than the body of an answer."""
    kind = document.get("type")
    if not isinstance(kind, str):
        return False
    return providers.has_reader(kind) or _is_error(kind, providers) or bool(_PROSE_TYPES.fullmatch(kind))


def read_error_event(event: Event, providers: ProviderSet) -> LimitReading | None:
    """Return what an event states about capacity; None for everything that is not the CLI's own error."""
    kind = event.get("type")
    if not isinstance(kind, str):
        return error_reading(event) if "error" in event else None
    if providers.has_reader(kind):
        return providers.read_event(kind, event)
    if _is_error(kind, providers):
        return error_reading(event)
    if _PROSE_TYPES.fullmatch(kind):
        return None
    return error_reading(event) if event.get("error") else None


def _is_error(kind: str, providers: ProviderSet) -> bool:
    return kind in providers.error_events or bool(_FAILED_TYPES.fullmatch(kind))


_REASON_NAME = re.compile(r"limit|reason|error|credit|billing|quota")
_REASON = re.compile(r"[A-Za-z]{2,40}(?:[_-][A-Za-z]{2,40}){1,8}")


def find_headers(pairs: Iterable[tuple[str, str]], providers: ProviderSet) -> Headers:
    """Return the headers in a body: proxies and CLIs put whole responses into their errors."""
    return normalize_headers({key: value for key, value in pairs if providers.header_name.fullmatch(key)})


def read_headers(headers: Headers, providers: ProviderSet, *, status: int | None, seen_at: float) -> LimitReading:
    """Return the meaning of the headers of an answer with this status."""
    if not headers:
        return NO_HEADERS
    buckets = read_buckets(headers, providers.buckets, seen_at)
    budgets = (
        *_bucket_budgets(buckets),
        *(budget for known in providers.providers if known.budgets for budget in known.budgets(headers, seen_at)),
    )
    is_refused = status is None or status >= 400
    if not is_refused:
        return LimitReading(budgets=budgets)
    for known in providers.providers:
        if known.decide and (decided := known.decide(headers, status, seen_at)) is not None:
            return msgspec.structs.replace(decided, budgets=budgets)
    if (reset := retry_after(headers, seen_at) or _empty_bucket(buckets)) is not None:
        return LimitReading(reset=reset, budgets=budgets, rule=reset.rule)
    return LimitReading(budgets=budgets)


def named_reasons(headers: Headers) -> str:
    """Return the headers that name a reason, as lines of text. Whether usage beyond the plan is on refuses nothing."""
    return "\n".join(
        f"{name}: {value}"
        for name, value in headers.items()
        if _REASON_NAME.search(name) and "overage" not in name and _REASON.fullmatch(value)
    )


def _empty_bucket(buckets: dict[str, Bucket]) -> Reset | None:
    spent = [reset for left, reset, _ in buckets.values() if left == 0 and reset is not None]
    if spent:
        return Reset(at=max(spent), confidence=0.9, source="header", rule="header.exhausted-bucket")
    silent = [reset for left, reset, _ in buckets.values() if left is None and reset is not None]
    if silent and len(silent) == len(buckets):
        return Reset(at=max(silent), confidence=0.6, source="header", rule="header.bucket-reset")
    return None


def _bucket_budgets(buckets: dict[str, Bucket]) -> list[Budget]:
    """Return the budget of requests and tokens. Of several buckets of one sort the emptiest counts."""
    told = [(name, bucket) for name, bucket in buckets.items() if bucket.left is not None]
    requests = _emptiest([bucket for name, bucket in told if "token" not in name])
    tokens = _emptiest([bucket for name, bucket in told if "token" in name])
    if not told:
        return []
    return [
        Budget(
            requests_remaining=_whole(requests.left),
            requests_reset_at=requests.reset,
            requests_limit=_whole(requests.limit),
            tokens_remaining=_whole(tokens.left),
            tokens_reset_at=tokens.reset,
            tokens_limit=_whole(tokens.limit),
            source="header",
        )
    ]


def _emptiest(buckets: list[Bucket]) -> Bucket:
    return min(buckets, key=lambda bucket: bucket.left or 0.0, default=Bucket())


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


TOOL_OUTPUT = "tool-output"
"""The provider of texts that are never a signal, whatever they contain."""
# An answer of status 200 may hold an error after all: in a stream, or as its only content.
_ERROR_IN_200 = re.compile(
    r'"error"\s?:\s?"\w|"error_?code"\s?:\s?"?[1-9]|"code"\s?:\s?"?[1-9]\d{3,5}"?\s?,\s?"(?:message|msg)"|"?(?:error|event)"?\s?[:=]\s?"?(?:\{|error\b|\[)|"status_code"\s?:\s?[1-9]|"status"\s?:\s?"?[45]\d\d\b'
    r"|response\.failed|:HTTP_STATUS/[45]",
    re.I,
)
_ANSWERS = re.compile(r'"(?:text|content)"\s?:\s?"((?:[^"\\]|\\.){8,3000})"')
_ERROR_AS_ANSWER = re.compile(r"\[?(?:API )?Error: .{0,60}\b[45]\d\d\b")
LONGEST_BANNER = 200
"""Characters. A longer answer is not only a banner."""
# On a screen the agent's prose and its tools' output stand beside the CLI's own lines, which have these forms.
_OWN_ON_SCREEN = re.compile(
    r"API Error|Retrying in|Reconnecting\.\.\.|stream (?:error|disconnected)"
    r"|[Uu]nable to connect to (?:API|\w+ services)"
)


def explain(observation: Observation, providers: ProviderSet) -> Reading:
    """Return the signals of an observation and the names of the rules that fired. Never raises."""
    try:
        return _explain(observation, providers)
    except Exception:  # noqa: BLE001 - the promise is to survive any input; silence is the safe answer
        return NOTHING


def read_event(provider: str, event: Event, *, seen_at: float, tz: str, providers: ProviderSet) -> list[Signal]:
    """Return the signals in one structured event of an agent CLI. Prose and tool results in it are no signal."""
    try:
        return _read_event(Scene(provider=provider, seen_at=seen_at, tz=tz, providers=providers), event).signals
    except Exception:  # noqa: BLE001 - an event may be anything; silence is the safe answer
        return []


def read_line(
    provider: str, line: str, *, channel: str, seen_at: float, tz: str, providers: ProviderSet
) -> list[Signal]:
    """Return the signals in one line of the CLI's own text (stderr, plain stdout, screen)."""
    if not providers.has_hint(line) and not HIDDEN.search(line):
        return []
    observation = Observation(provider=provider, channel=channel, text=line, seen_at=seen_at, tz=tz)
    return explain(observation, providers).signals


def _explain(seen: Observation, providers: ProviderSet) -> Reading:
    provider = decode_text(seen.provider).strip().lower()
    if provider == TOOL_OUTPUT:
        return NOTHING
    scene = Scene(
        provider=provider, seen_at=_sane_time(seen.seen_at), tz=decode_text(seen.tz) or "UTC", providers=providers
    )
    text = shorten(decode_text(seen.text))
    status = seen.status if isinstance(seen.status, int) and not isinstance(seen.status, bool) else None
    headers = normalize_headers(seen.headers)
    is_body = seen.channel == "http"
    if not is_body:
        events = [document for document in find_documents(text) if is_event(document, providers)] if "{" in text else []
        if events and not _is_quoted_body(text, events):
            return _combine([_read_event(scene, event, status=status) for event in events])
        if is_cut_prose(text, providers):
            return NOTHING
    if status is not None and status < 400 and not _ERROR_IN_200.search(text[:4000]):
        return _read_healthy(scene, text, headers, status)
    plain = make_readable(text if is_body else "\n".join(with_blanks_for_shown_output(text.split("\n"))))
    if not headers and status is None and not (providers.has_hint(plain) or providers.has_hint(join_lines(plain))):
        return NOTHING
    reading = decide(_evidence_in_text(scene, plain, headers, status, is_body=is_body))
    if seen.channel != "screen" or _OWN_ON_SCREEN.search(plain):
        return reading
    kept = [signal for signal in reading.signals if not isinstance(signal, Unreachable)]
    return Reading(signals=kept, rules=reading.rules)


def _evidence_in_text(scene: Scene, plain: str, headers: Headers, status: int | None, *, is_body: bool) -> Evidence:
    refused = status is not None and status >= 400
    is_loose = is_body or refused
    pairs = scan_pairs(plain if is_loose else own_lines(plain))
    all_headers = {**find_headers(pairs, scene.providers), **headers}
    stated = status if refused else field_status(pairs)
    reasons = named_reasons(headers) if refused else ""
    text = f"{plain}\n{reasons}" if reasons else plain
    return Evidence(
        scene=scene,
        found=LimitReading(text=text, pairs=pairs, status=stated if is_loose else status),
        is_loose=is_loose,
        headers=read_headers(all_headers, scene.providers, status=stated, seen_at=scene.seen_at),
    )


def _read_event(scene: Scene, event: Event, *, status: int | None = None) -> Reading:
    found = read_error_event(event, scene.providers)
    if found is None:
        return NOTHING
    if found.kind is None and not (found.budgets and not found.text):
        known = found.status or status
        headers = read_headers(
            find_headers(found.pairs, scene.providers), scene.providers, status=known or 429, seen_at=scene.seen_at
        )
        words = msgspec.structs.replace(found, text=make_readable(shorten(found.text)), status=known)
        return decide(Evidence(scene=scene, found=words, is_loose=True, headers=headers))
    signals = make_signals(found, scene.seen_at)
    return Reading(
        signals=[*signals, *found.budgets], rules=_named(found.rule, found.reset.rule if found.reset else "")
    )


def _combine(readings: list[Reading]) -> Reading:
    """Return the last of several readings that states a limit, with the budgets of all."""
    rules = tuple(rule for reading in readings for rule in reading.rules)
    budgets: list[Signal] = [signal for reading in readings for signal in reading.signals if isinstance(signal, Budget)]
    for reading in reversed(readings):
        limits = [signal for signal in reading.signals if not isinstance(signal, Budget)]
        if limits:
            return Reading(signals=[*limits, *budgets], rules=rules)
    return Reading(signals=budgets, rules=rules)


def _sane_time(value: object) -> float:
    number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
    return number if in_range(number) else 0.0


def _is_quoted_body(text: str, events: list[Event]) -> bool:
    """Return whether the only event is the body of an API's answer, quoted in a line of the CLI's own."""
    return len(events) == 1 and events[0].get("type") == "error" and not text.lstrip().startswith("{")


def _read_healthy(scene: Scene, text: str, headers: Headers, status: int) -> Reading:
    """Read a successful answer: its budgets, or a subscription's banner that a proxy passed on as an answer."""
    healthy = read_headers(headers, scene.providers, status=status, seen_at=scene.seen_at)
    answers = _ANSWERS.findall(text[:4000])
    if len(answers) == 1 and (reading := _read_answer(scene, answers[0])).signals:
        return Reading(signals=[*reading.signals, *healthy.budgets], rules=reading.rules)
    return Reading(signals=list(healthy.budgets), rules=_named(healthy.rule))


def _read_answer(scene: Scene, answer: str) -> Reading:
    """Read the only text of an answer, if it is nothing but an error or a banner with its reset."""
    text = make_readable(answer)
    if _ERROR_AS_ANSWER.match(text):
        return decide(Evidence(scene=scene, found=LimitReading(text=text, pairs=scan_pairs(text)), is_loose=True))
    if len(text) > LONGEST_BANNER:
        return NOTHING
    reading = decide(Evidence(scene=scene, found=LimitReading(text=text), is_loose=False))
    closed = any(isinstance(signal, QuotaClosed) and signal.resets_at is not None for signal in reading.signals)
    return reading if closed else NOTHING
