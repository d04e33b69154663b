"""From an observation to its signals: structured events first, then the text with its headers and fields.

Here: what an observation is (an event, a body, a screen, a healthy answer) and what is known of it. Never here: which
limit that means (`decision.py`), and a provider's words, which are in `providers/`.
"""

import re

from paceline.core.signals import Budget, QuotaClosed, Reach, Signal, Unreachable
from paceline.detect.decision import Diagnosis, Evidence, Scene, decide, make_signals
from paceline.detect.event_reader import is_cut_prose, is_event, read_error_event
from paceline.detect.header_reader import find_headers, named_reasons, read_headers
from paceline.detect.observation import NOTHING, Observation, Reading
from paceline.detect.parsing.body_fields import field_status
from paceline.detect.parsing.headers import Headers, normalize_headers
from paceline.detect.parsing.json_objects import Event, find_documents, scan_pairs
from paceline.detect.parsing.reset_times import in_range
from paceline.detect.parsing.text import decode_text, join_lines, make_readable, shorten
from paceline.detect.provider import EventReading
from paceline.detect.provider_set import ProviderSet
from paceline.detect.providers import KNOWN
from paceline.detect.shown_output import without_shown_output
from paceline.detect.speaker import own_lines

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


def explain(observation: Observation, *, providers: ProviderSet = KNOWN) -> Reading:
    """Return the signals of an observation and the names of the rules that fired. Never raises."""
    try:
        return _explain(observation, providers)
    except Exception:  # noqa: BLE001 - the promise is to survive any input; silence is the safe answer
        return NOTHING


def read_event(provider: str, event: Event, *, seen_at: float, tz: str, providers: ProviderSet = KNOWN) -> list[Signal]:
    """Return the signals in one structured event of an agent CLI. Prose and tool results in it are no signal."""
    try:
        return _read_event(Scene(provider=provider, seen_at=seen_at, tz=tz, providers=providers), event).signals
    except Exception:  # noqa: BLE001 - an event may be anything; silence is the safe answer
        return []


def read_line(
    provider: str, line: str, *, channel: str, seen_at: float, tz: str, providers: ProviderSet = KNOWN
) -> list[Signal]:
    """Return the signals in one line of the CLI's own text (stderr, plain stdout, screen)."""
    if not providers.has_hint(line) and not _HIDDEN.search(line):
        return []
    observation = Observation(provider=provider, channel=channel, text=line, seen_at=seen_at, tz=tz)
    return explain(observation, providers=providers).signals


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
