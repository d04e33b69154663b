"""From an observation to its signals: structured events first, then the text with its headers and fields.

Here: what an observation is (an event, a body, a screen, a healthy answer), whether an event is an error, prose or
bookkeeping, and the order in which headers are trusted: a provider's own decision, then a wait, then an empty bucket.
Never here: which limit that means (`decision.py`), and the words, events and headers of one provider.
"""

import re
from collections.abc import Iterable

import msgspec

from paceline.core.signals import Budget, QuotaClosed, Reach, Signal, Unreachable
from paceline.detect.decision import Diagnosis, Evidence, Scene, decide, make_signals
from paceline.detect.fields import Bucket, Headers, field_status, normalize_headers, read_buckets, retry_after
from paceline.detect.json_objects import Event, find_documents, scan_pairs
from paceline.detect.observation import NOTHING, Observation, Reading
from paceline.detect.own_lines import own_lines, without_shown_output
from paceline.detect.provider import EventReading, HeaderReading, ProviderSet, error_reading
from paceline.detect.text import decode_text, join_lines, make_readable, shorten
from paceline.detect.times import Reset, in_range

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


def read_error_event(event: Event, providers: ProviderSet) -> EventReading | None:
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
NO_HEADERS = HeaderReading()


def find_headers(pairs: Iterable[tuple[str, str]], providers: ProviderSet) -> Headers:
    """Return the headers in a body: proxies and CLIs put whole responses into their errors."""
    return normalize_headers({key: value for key, value in pairs if providers.header_name.fullmatch(key)})


def read_headers(headers: Headers, providers: ProviderSet, *, status: int | None, seen_at: float) -> HeaderReading:
    """Return the meaning of the headers of an answer with this status."""
    if not headers:
        return NO_HEADERS
    buckets = read_buckets(headers, providers.buckets, seen_at)
    budgets = (
        *_bucket_budgets(buckets),
        *(budget for rules in providers.headers if rules.budgets for budget in rules.budgets(headers, seen_at)),
    )
    is_refused = status is None or status >= 400
    if not is_refused:
        return HeaderReading(budgets=budgets)
    for rules in providers.headers:
        if rules.decide and (decided := rules.decide(headers, status, seen_at)) is not None:
            return msgspec.structs.replace(decided, budgets=budgets)
    if (reset := retry_after(headers, seen_at) or _empty_bucket(buckets)) is not None:
        return HeaderReading(reset=reset, budgets=budgets, rules=(reset.rule,))
    return HeaderReading(budgets=budgets)


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
# Escapes, colours, line breaks and odd letters may hide words, so only plain text can be skipped unread.
_HIDDEN = re.compile(r"[^\x20-\x5b\x5d-\x7e]")


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
    if not providers.has_hint(line) and not _HIDDEN.search(line):
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
    if status is not None and status < 400 and not _carries_error(text):
        return _read_healthy(scene, text, headers, status)
    plain = make_readable(text if is_body else without_shown_output(text))
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
    return Evidence(
        scene=scene,
        text=f"{plain}\n{reasons}" if reasons else plain,
        is_loose=is_loose,
        pairs=pairs,
        headers=read_headers(all_headers, scene.providers, status=stated, seen_at=scene.seen_at),
        status=stated if is_loose else status,
    )


def _read_event(scene: Scene, event: Event, *, status: int | None = None) -> Reading:
    found = read_error_event(event, scene.providers)
    if found is None:
        return NOTHING
    if found.kind is None and not (found.budgets and not found.text):
        return decide(_evidence_in_event(scene, found, status))
    signals: list[Signal] = list(found.budgets)
    if found.kind is not None:
        reach: Reach | None = "model" if found.is_for_model else None
        diagnosis = Diagnosis(
            kind=found.kind,
            reset=found.reset,
            reach=reach,
            window=found.window,
            cause=found.cause,
            source="field",
            text=found.text,
        )
        signals[:0] = make_signals(diagnosis, scene.seen_at)
    rules = tuple(filter(None, (found.rule, found.reset.rule if found.reset else "")))
    return Reading(signals=signals, rules=rules)


def _evidence_in_event(scene: Scene, found: EventReading, status: int | None) -> Evidence:
    known = found.status or status
    headers = find_headers(found.pairs, scene.providers)
    return Evidence(
        scene=scene,
        text=make_readable(shorten(found.text)),
        is_loose=True,
        pairs=found.pairs,
        headers=read_headers(headers, scene.providers, status=known or 429, seen_at=scene.seen_at),
        status=known,
        default=found.default,
        reset=found.reset,
        rule=found.rule,
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


def _carries_error(text: str) -> bool:
    """Return whether an answer of status 200 holds an error after all: in a stream, or as its only content."""
    return bool(_ERROR_IN_200.search(text[:4000]))


def _read_healthy(scene: Scene, text: str, headers: Headers, status: int) -> Reading:
    """Read a successful answer: its budgets, or a subscription's banner that a proxy passed on as an answer."""
    healthy = read_headers(headers, scene.providers, status=status, seen_at=scene.seen_at)
    answers = _ANSWERS.findall(text[:4000])
    if len(answers) == 1 and (reading := _read_answer(scene, answers[0])).signals:
        return Reading(signals=[*reading.signals, *healthy.budgets], rules=reading.rules)
    return Reading(signals=list(healthy.budgets), rules=healthy.rules)


def _read_answer(scene: Scene, answer: str) -> Reading:
    """Read the only text of an answer, if it is nothing but an error or a banner with its reset."""
    text = make_readable(answer)
    if _ERROR_AS_ANSWER.match(text):
        return decide(Evidence(scene=scene, text=text, is_loose=True, pairs=scan_pairs(text)))
    reading = decide(Evidence(scene=scene, text=text, is_loose=False)) if len(text) <= LONGEST_BANNER else NOTHING
    closed = any(isinstance(signal, QuotaClosed) and signal.resets_at is not None for signal in reading.signals)
    return reading if closed else NOTHING
