"""The time when a limit ends: every way it is written, as one value with a confidence.

Here: durations, epochs, dates and clocks, and the words in front of them that make them a reset. Never here: what
kind of limit it is. Elapsed times ("worked for 3m 51s") have no such words and are never read as a reset.
"""

import math
import re
from email.utils import parsedate_to_datetime

import msgspec

from paceline.detect.parsing.clock_times import LAST_EPOCH, read_moment, resolve, zone_named

PLAUSIBLE = 40 * 86400.0
"""Seconds. Longer than any window seen (a month); a reset beyond it is kept with `UNBELIEVED` confidence."""
OLDEST_EPOCH = 1e8
"""A smaller number is a duration: as an epoch it would be before 1973."""
UNBELIEVED = 0.2
"""Low enough that callers probe instead of waiting, and above 0 so that the value is still reported."""
JUST_PASSED = 300.0
"""Seconds. A reset this little in the past is plausible: clocks differ, and output arrives late."""


class Reset(msgspec.Struct, frozen=True, kw_only=True):
    """A reset as found: `after` seconds from when it was seen, or `at` an absolute time.

    `own` is the client's own backoff: a lower bound that the provider did not state.
    """

    after: float | None = None
    at: float | None = None
    confidence: float = 1.0
    source: str = "text"
    rule: str = ""
    own: bool = False

    def time(self, seen_at: float) -> float:
        """Return it as absolute time."""
        return self.at if self.at is not None else seen_at + (self.after or 0.0)

    def delay(self, seen_at: float) -> float:
        """Return it as seconds from `seen_at`; a time that has passed means now."""
        return max(0.0, self.after if self.after is not None else (self.at or 0.0) - seen_at)


def discount_implausible(reset: Reset, seen_at: float) -> Reset:
    """Return the same reset, with hardly any confidence if it is implausible. Its value is never changed."""
    ahead = reset.time(seen_at) - seen_at
    if -JUST_PASSED <= ahead <= PLAUSIBLE:
        return reset
    return msgspec.structs.replace(reset, confidence=min(reset.confidence, UNBELIEVED))


# --- durations -------------------------------------------------------------------------------

_UNITS = {
    "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "us": 1e-6, "ns": 1e-9,
}  # fmt: skip
_NUMBER = r"\d{1,10}(?:\.\d{1,12})?"
# Longest first: `ms` before `m`, `min` before `m`.
_UNIT_WORDS: tuple[tuple[str, str], ...] = (
    (r"milliseconds?|msecs?|ms|毫秒", "ms"),
    (r"microseconds?|[uµ]s", "us"),
    (r"nanoseconds?|ns", "ns"),
    (
        r"second\(s\)|seconds?|secs?|segundos?|secondes?|sekunden?|secondi|секунд\w?|sekund\w?|saniye|s(?![a-z])|秒钟?|초",
        "s",
    ),
    (r"minute\(s\)|minutes?|minutos?|minuten?|minuti|минут\w?|minut\w?|dakika|mins?|m(?![a-z])|分钟?|分間|분", "m"),
    (r"hour\(s\)|hours?|horas?|heures?|stunden?|ore|час\w{0,2}|godzin\w?|saat|hrs?|hr|h(?![a-z])|小时|時間|시간", "h"),
    (r"day\(s\)|days?|d[ií]as?|jours?|tagen?|tage|giorni|d(?![a-z])|天|日間|일", "d"),
    (r"weeks?|semanas?|wochen?|w(?![a-z])|周|週間|주", "w"),
)
_UNIT = "(?:" + "|".join(f"(?P<{unit}>{words})" for words, unit in _UNIT_WORDS) + ")"
_PART = re.compile(rf"\s?(?:,\s?|and\s|et\s|y\s|e\s|und\s)?(?P<n>{_NUMBER}|an?(?=\shour))\s?{_UNIT}", re.I)


def read_duration(text: str, pos: int = 0) -> tuple[float, int] | None:
    """Return the duration written at `pos` (`6m0s`, `4hr 19min`, `5 days 22 hours`), and where it ends."""
    total, start, parts = 0.0, pos, 0
    previous = math.inf
    while parts < 8 and (match := _PART.match(text, pos)):
        unit = next(key for key in _UNITS if match[key])
        size = _UNITS[unit]
        if size >= previous:  # units only get smaller: "2 minutes, 3 hours" are two durations
            break
        number = match["n"]
        total += (1.0 if number.lower().startswith("a") else float(number)) * size
        pos, previous, parts = match.end(), size, parts + 1
    return (total, pos) if pos > start else None


def parse_duration(text: str) -> float | None:
    """Return a field or header that is nothing but a duration. A bare number is seconds."""
    text = text.strip()
    if number := to_number(text):
        return number if number >= 0 else None
    if text in ("0", "0.0"):
        return 0.0
    read = read_duration(text)
    return read[0] if read and read[1] == len(text) else None


# --- absolute times --------------------------------------------------------------------------


def to_number(value: object) -> float | None:
    """Return a value as a usable number, or None for NaN, infinity, other text and booleans."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and (len(value) > 40 or not value.strip()[:1].isdigit()):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def epoch_seconds(number: float) -> float | None:
    """Return Unix seconds from an epoch in seconds, milli-, micro- or nanoseconds; None if it is no epoch."""
    for scale in (1.0, 1e3, 1e6, 1e9):
        if OLDEST_EPOCH <= number / scale < 1e11:
            return number / scale
    return None


def parse_instant(text: str, *, seen_at: float, tz: str) -> float | None:
    """Return a field or header that is nothing but a moment: an epoch, ISO 8601, an HTTP date."""
    text = text.strip()
    if (number := to_number(text)) is not None:
        return epoch_seconds(number)
    if "," in text[:5] and len(text) < 60 and (http := _http_date(text)) is not None:
        return http
    read = read_moment(text[:80])
    if read is None or read[1] < min(len(text), 80) or read[0].month is None:
        return None
    return resolve(read[0], seen_at=seen_at, tz=tz)


def _http_date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError, OSError):
        return None


def parse_retry_after(text: str, *, seen_at: float, rule: str) -> Reset | None:
    """Read `Retry-After` in all its forms: seconds, fractions, `6m0s`, an HTTP date, ISO, an epoch."""
    number = to_number(text)
    if number is not None and (epoch := epoch_seconds(number)) is not None:
        return Reset(at=epoch, confidence=0.9, source="header", rule=rule)
    if (after := parse_duration(text)) is not None:
        return Reset(after=after, confidence=0.95, source="header", rule=rule)
    if (at := parse_instant(text, seen_at=seen_at, tz="UTC")) is not None:
        return Reset(at=at, confidence=0.95, source="header", rule=rule)
    return None


# --- in sentences ----------------------------------------------------------------------------

# Words that make what follows them a reset. The client's own backoff has words of its own (`_OWN`).
_CUE = re.compile(
    r"\b(?:resets?|reset(?:ting|ed)?|try(?:ing)?\sagain|retry|wait|come\sback|check\sback|(?:back|again)(?=\s(?:on|at)\s)|(?:re)?opens?(?=\s\d)|versuchen?\s(?:sie\s)?es|через|return"
    r"|regain(?:ing)?\saccess|available(?:\sagain)?|(?:auto-)?resum(?:e|es|ing)|unlocks?|renews?|refresh(?:es|ed)?|refills?|renewed|replenish(?:es|ed)?|cycle\sends"
    r"|window\sends|lifted|restored|until|(?:blocked|limit(?:ed|ing)|paused|locked|suspended)\sfor|cooling\sdown|expires|redefinid[oa]s?|redefine|renova(?:do|rá)?|restablece(?:rá|r)?|reinicia(?:rá|r)?"
    r"|réinitialis\w{1,6}|réessayer|réessayez|attendre|patienter|zurückgesetzt|erneut|warten\sSie|aguarde|espere|espera|tente\snovamente|intente(?:lo)?\sde\snuevo"
    r"|attendi|riprova|reimpostat[oa])(?:\b|(?=\s))"
    # "more in 38 minutes", "you can start new tasks in 5 hours", "the next one opens in 41 min"
    r"|\b(?:more|next|start|continue|(?:re)?opens?|back|ready|clears?|lifts?)(?:\s[a-z]{1,12}){0,3}(?=\sin\s~?\d)"
    r"|再試行|подождите|poczekaj|počkejte|bekleyin|将在|将于|請在|请在|请等待|等待|请于|예정|리셋|재설정",
    re.I,
)
_CONNECT = re.compile(
    r"(?:\s(?:will|is|are|be|again|access|limit|quota|usage|your|the|it|up|by|about|around|approximately|roughly"
    r"|approx\.?|another|using|this|model|at\sleast|next|time|se|d[ée]|wieder|de\snovo|de\snuevo)\b){0,4}"
    r"\s?[:=~≈(]?\s?(?:(?:on|at|in|after|for|by|until|within|till|em|en|el|le|dans|à|às|am|um|ab|tra|il|para):?\s)?[:~≈]?\s?",
    re.I,
)
_OWN = re.compile(
    r"\b(?:retrying|reconnecting|waiting|backing\soff|backoff|sleeping|next\sretry|will\sretry|attempt\s#?\d{1,3}/\d{1,3}\s·)(?:[^\n]{0,140}?\b(?:in|after|for)\s|\s)(?=\d)",
    re.I,
)
# In these languages the cue follows: 2026-08-25 07:41:44 重置, 7月3日 11:43 にリセット.
_CUE_AFTER = re.compile(
    r"重置|刷新|恢复|恢復|リセット|再試行|待って|お待ち|재설정|초기화|기다|다시|后重试|後に|后再试|内重试"
)
_PIPE_EPOCH = re.compile(r"\|\s?(\d{10}(?:\d{3})?)\b")


def find_resets(text: str, *, seen_at: float, tz: str) -> list[Reset]:
    """Return all resets that a text states, the provider's before the client's own; each group in text order."""
    by_cue: dict[str, Reset] = {}
    for cue in _CUE.finditer(text):
        found = None if _counts_past(text, cue.start()) else _value_after(text, cue.end(), seen_at=seen_at, tz=tz)
        if found is not None:
            # A log repeats the same line, each time with less to wait: the last one counts.
            by_cue[text[max(0, cue.start() - 30) : cue.end()].lower()] = found
    server = list(by_cue.values())
    server += _before_cue(text, seen_at=seen_at, tz=tz)
    if pipe := _PIPE_EPOCH.search(text):
        at = epoch_seconds(float(pipe[1]))
        server.insert(0, Reset(at=at, confidence=0.95, rule="reset.pipe-epoch"))
    own = [
        Reset(after=read[0], confidence=0.5, source="backoff", rule="reset.own-backoff", own=True)
        for match in _OWN.finditer(text)
        if (read := read_duration(text, match.end())) is not None
    ]
    # The client's attempts follow one another, so the last one counts.
    return server + own[::-1]


def _counts_past(text: str, start: int) -> bool:
    """Return whether the words state what has passed: `total retry wait time: 16 s`, `waited for 3 s`."""
    return bool(re.search(r"(?:total(?:\sretry)?|retry|already|has|have)\s$", text[max(0, start - 14) : start], re.I))


def _value_after(text: str, pos: int, *, seen_at: float, tz: str) -> Reset | None:
    connect = _CONNECT.match(text, pos)
    near = pos + len(text[pos : pos + 3]) - len(text[pos : pos + 3].lstrip())
    for start in dict.fromkeys((connect.end() if connect else near, near)):
        if (count := _COUNTDOWN.match(text, start)) and _RELATIVE.search(text, pos, start):
            days, hours, minutes, seconds = (float(part or 0) for part in count.groups())
            after = days * 86400 + hours * 3600 + minutes * 60 + seconds
            return Reset(after=after, confidence=0.9, rule="reset.countdown")
        if (found := _value_at(text, start, seen_at=seen_at, tz=tz)) is not None:
            return found
    return None


_COUNTDOWN = re.compile(r"(?:(\d{1,3})\.)?(\d{1,3}):([0-5]\d):([0-5]\d)\b")  # after "in" a duration, not a time of day
_RELATIVE = re.compile(r"\b(?:in|after|within|for)\s$")


def _value_at(text: str, pos: int, *, seen_at: float, tz: str) -> Reset | None:
    if epoch := re.compile(r"\d{10}(?:\d{3})?\b(?![:./-]\d)").match(text, pos):
        return Reset(at=epoch_seconds(float(epoch[0])), confidence=0.9, rule="reset.epoch")
    moment, duration = read_moment(text, pos), read_duration(text, pos)
    # `3.5h` is a duration, `3:30` a clock: the reading that covers more text is right.
    if duration is not None and (moment is None or duration[1] >= moment[1]):
        return Reset(after=duration[0], confidence=0.9, rule="reset.duration")
    if moment is not None and (at := resolve(moment[0], seen_at=seen_at, tz=tz)) is not None:
        sure = 0.9 if moment[0].zone and zone_named(moment[0].zone) else 0.75
        return Reset(at=at, confidence=sure, rule=f"reset.{moment[2]}")
    return None


def _before_cue(text: str, *, seen_at: float, tz: str) -> list[Reset]:
    found = []
    for cue in _CUE_AFTER.finditer(text):
        head = max(0, cue.start() - 44)
        for digit in re.finditer(r"(?<![\d:./-])\d", text[head : cue.start()]):
            reset = _value_at(text[: cue.start()], head + digit.start(), seen_at=seen_at, tz=tz)
            if reset is not None:
                found.append(reset)
                break
    return found


def in_range(at: float) -> bool:
    """Return whether an absolute time can be handled at all."""
    return math.isfinite(at) and abs(at) < LAST_EPOCH
