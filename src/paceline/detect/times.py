"""Times as people and programs write them, and the time when a limit ends, as one value with a confidence.

Here: moments (`3pm (Europe/Paris)`, `Jul 5th, 2026 8:19 PM`, `9월 13일 오전 10:36`) with their absolute time in the
right zone, durations, epochs, and the words in front of them that make them a reset. Never here: what kind of limit
it is, and the machine's own clock. Elapsed times ("worked for 3m 51s") have no such words, so none is read as a reset.
"""

import math
import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from email.utils import parsedate_to_datetime
from functools import cache, lru_cache
from zoneinfo import ZoneInfo

import msgspec

JUST_REOPENED = 300.0
"""Seconds. A bare clock time this little in the past means "just now", not "tomorrow": a probe is cheap."""
DATE_GRACE = 2 * 86400.0
"""Seconds. A date without a year may be this far back before it means next year: zones and late output shift it."""
LAST_EPOCH = 253_000_000_000.0
"""Year 9987: `datetime` raises a little later."""


class WrittenTime(msgspec.Struct, frozen=True, kw_only=True):
    """A written moment, with what was left out as None."""

    year: int | None = None
    month: int | None = None
    day: int | None = None
    weekday: int | None = None
    days_ahead: int | None = None
    hour: int | None = None
    minute: int = 0
    second: float = 0.0
    zone: str | None = None


# --- zones -----------------------------------------------------------------------------------

# Printed abbreviations are fixed offsets: "PDT" means summer time even when read in winter.
ABBREVIATIONS = {
    "utc": 0.0, "gmt": 0.0, "z": 0.0, "pst": -8.0, "pdt": -7.0, "mst": -7.0, "mdt": -6.0, "cst": -6.0, "cdt": -5.0,
    "est": -5.0, "edt": -4.0, "bst": 1.0, "wet": 0.0, "west": 1.0, "cet": 1.0, "cest": 2.0, "eet": 2.0, "eest": 3.0,
    "msk": 3.0, "ist": 5.5, "jst": 9.0, "kst": 9.0, "hkt": 8.0, "sgt": 8.0, "aest": 10.0, "aedt": 11.0, "brt": -3.0,
    "akst": -9.0, "akdt": -8.0, "hst": -10.0, "nzst": 12.0, "nzdt": 13.0,
}  # fmt: skip
CITY_ZONES = {"pt": "America/Los_Angeles", "pacific": "America/Los_Angeles", "et": "America/New_York",
              "eastern": "America/New_York", "beijing": "Asia/Shanghai"}  # fmt: skip
_OFFSET = re.compile(r"(?:utc|gmt)?\s?([+-])(\d{1,2}):?(\d{2})?(?:\s?[a-z]{2,5})?", re.I)


@lru_cache(maxsize=512)
def zone_named(name: str) -> tzinfo | None:
    """Return the zone that a text names, or None. `Etc/GMT+5` is UTC-5 as in POSIX; a printed `GMT-3` is UTC-3."""
    name = name.strip()
    low = name.lower().removesuffix(" time")
    if low in ABBREVIATIONS:
        return timezone(timedelta(hours=ABBREVIATIONS[low]))
    if offset := _OFFSET.fullmatch(name):
        hours, minutes = int(offset[2]), int(offset[3] or 0)
        if hours > 14 or minutes > 59:
            return None
        return timezone((-1 if offset[1] == "-" else 1) * timedelta(hours=hours, minutes=minutes))
    try:
        return ZoneInfo(CITY_ZONES.get(low, name))
    except (KeyError, ValueError, OSError):
        return None


# --- grammar ---------------------------------------------------------------------------------

_MONTHS = (
    "jan ene gen janv", "feb fev fév fevr févr", "mar mär maa mars març", "apr abr avr avril",
    "may mai mag mei", "jun giu juin", "jul lug juil", "aug ago aou aoû août", "sep set sett sept",
    "oct okt out ott", "nov", "dec dez dic déc",
)  # fmt: skip
_MONTH_OF = {prefix: number for number, names in enumerate(_MONTHS, 1) for prefix in names.split()}
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

# Abbreviations only as printed: `et` and `est` are words.
_ABBREVIATED = (
    r"(?-i:UTC|GMT|Z|[PMCE][SD]T|PT|ET|BST|CES?T|EES?T|WES?T|MSK|IST|JST|KST|HKT|SGT|AE[SD]T|BRT|AK[SD]T|HST|NZ[SD]T)\b"
)
_ZONE = (
    r"(?:\s?\(?(?P<zone>[A-Z][A-Za-z]{2,}/[A-Za-z][\w+\-]*(?:/[A-Za-z_]+)?"
    r"|(?:UTC|GMT)\s?[+-]\d{1,2}(?::?\d{2})?|[+-]\d{2}:?\d{2}(?:\s[A-Z]{2,5}\b)?"
    rf"|{_ABBREVIATED}|(?:Pacific|Eastern|Beijing)(?:\s[Tt]ime)?)\)?)?"
)
_HALF = r"(?P<half>[AaPp](?:\.[Mm]\.|[Mm]\b\.?))"
_CLOCK = rf"(?P<hour>\d{{1,2}})(?::(?P<minute>\d{{2}})(?:[:](?P<second>\d{{2}}(?:\.\d{{1,9}})?))?)?\s?{_HALF}?"
_YEAR = r"(?P<year>(?:19|20|21)\d{2})"
_MONTH = r"(?P<month>[A-Za-zéûçä]{3,10})\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th|º|\.)?"
_DAYNAME = r"(?:(?P<weekday>mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6}\.?,?\s)"
_JOIN = r"(?:,|\sat|\sum|\sà|\sa\sla[s]?|\sàs|\s@|\s-)?,?\s"
_TIME = rf"(?:{_JOIN}{_CLOCK}{_ZONE})?"

_DIGITS = r"(?P<hour>\d{1,2}):(?P<minute>\d{2})"
_WEEKDAY = r"(?P<weekday>mon|tue|wed|thu|fri|sat|sun)(?:day|sday|nesday|rsday|urday)?\b"
_CJK_HALF = "오전|오후|上午|下午|午前|午後"

# In this order: the longer and more particular forms first.
_FORMS: tuple[tuple[str, ...], ...] = (
    (
        "iso",
        rf"{_YEAR}[-/](?P<month>\d{{1,2}})[-/](?P<day>\d{{1,2}})(?:(?:T|\sat\s|,?\s)",
        rf"{_DIGITS}(?::(?P<second>\d{{2}}(?:[.,]\d{{1,9}})?))?{_ZONE})?",
    ),
    ("month-day-clock", rf"(?P<month>\d{{2}})-(?P<day>\d{{2}})[ T]{_DIGITS}(?::(?P<second>\d{{2}}))?{_ZONE}"),
    ("us-date", rf"(?P<month>\d{{1,2}})/(?P<day>\d{{1,2}})(?:/(?P<year>(?:20)?\d{{2}}))?(?!\d){_TIME}"),
    (
        "cjk-date",
        r"(?:(?P<year>20\d{2})\s?[年년]\s?)?(?P<month>\d{1,2})\s?[月월]\s?(?P<day>\d{1,2})\s?[日일号]?,?\s?",
        rf"(?:(?P<half>{_CJK_HALF})\s?)?(?P<hour>\d{{1,2}})\s?[:時시点]\s?(?P<minute>\d{{2}})?{_ZONE}",
    ),
    ("weekday-month-day", rf"{_DAYNAME}{_MONTH}\s{_DAY}(?:,?\s{_YEAR})?{_TIME}"),
    ("month-day", rf"{_MONTH}\s{_DAY}(?:,?\s{_YEAR})?{_TIME}"),
    ("day-month", rf"{_DAYNAME}?{_DAY}\s(?:de\s)?{_MONTH}(?:(?:\sde|,)?\s{_YEAR})?{_TIME}"),
    (
        "clock-on-date",
        rf"{_CLOCK}\s(?:on|am|el|le)\s(?:{_DAY}\s{_MONTH}",
        rf"|(?P<month2>[A-Za-z]{{3,9}})\s(?P<day2>\d{{1,2}})(?:st|nd|rd|th)?)(?:,?\s{_YEAR})?{_ZONE}",
    ),
    ("clock-on-weekday", rf"{_CLOCK}{_ZONE},?\s(?:on\s)?{_WEEKDAY}"),
    ("weekday-clock", rf"(?:next\s|on\s)?{_DAYNAME}(?:at\s)?{_CLOCK}{_ZONE}"),
    ("weekday", rf"(?:next\s|on\s)?{_WEEKDAY}"),
    ("tomorrow-clock", rf"(?P<tomorrow>tomorrow|today),?\s(?:at\s)?{_CLOCK}{_ZONE}"),
    ("clock-tomorrow", rf"{_CLOCK}{_ZONE},?\s(?P<tomorrow>tomorrow|today)\b"),
    ("midnight", rf"(?P<midnight>midnight|noon)\b{_ZONE}"),
    ("clock", rf"(?:(?P<half2>{_CJK_HALF})\s?)?{_CLOCK}{_ZONE}"),
)


@cache
def _forms() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Compile the forms when the first moment is read: few commands of the CLI read one."""
    return tuple((name, re.compile("".join(parts), re.I)) for name, *parts in _FORMS)


def read_moment(text: str, pos: int = 0) -> tuple[WrittenTime, int, str] | None:
    """Return the moment written at `pos`: its value, where it ends, and the name of its form."""
    for name, form in _forms():
        if (match := form.match(text, pos)) and (when := _moment(match)) is not None:
            return when, match.end(), name
    return None


def _moment(match: re.Match[str]) -> WrittenTime | None:
    got = {key: value for key, value in match.groupdict().items() if value is not None}
    month = _month(got.get("month") or got.get("month2"))
    day = _whole(got.get("day") or got.get("day2"))
    if ("month" in got or "month2" in got) and (month is None or day is None or not 1 <= day <= 31):
        return None
    if "midnight" in got:
        return WrittenTime(hour=0 if got["midnight"].lower() == "midnight" else 12, zone=got.get("zone"))
    hour = _hour(got)
    if hour is None and ("hour" in got or (month is None and "weekday" not in got)):
        return None
    minute, second = int(got.get("minute", 0)), float(got.get("second", "0").replace(",", "."))
    if minute > 59 or second >= 61:
        return None
    weekday = got.get("weekday", "")[:3].lower()
    tomorrow = got.get("tomorrow", "").lower()
    return WrittenTime(
        year=_year(got.get("year")),
        month=month,
        day=day,
        weekday=_WEEKDAYS.index(weekday) if weekday and month is None else None,
        days_ahead={"tomorrow": 1, "today": 0}.get(tomorrow),
        hour=hour,
        minute=minute,
        second=second,
        zone=got.get("zone"),
    )


def _hour(got: dict[str, str]) -> int | None:
    if "hour" not in got:
        return None
    hour = int(got["hour"])
    half = (got.get("half") or got.get("half2") or "").lower().replace(".", "")
    if half:
        if not 0 <= hour <= 12:
            return hour if hour <= 23 and not half.endswith("m") else None
        afternoon = half in ("pm", "오후", "下午", "午後")
        return hour % 12 + (12 if afternoon else 0)
    # A bare number is no time of day: "resets 5".
    if "minute" not in got:
        return None
    return hour if hour <= 23 else None


def _month(name: str | None) -> int | None:
    if name is None:
        return None
    if name.isdigit():
        return int(name) if 1 <= int(name) <= 12 else None
    low = name.lower()
    return next((_MONTH_OF[low[:size]] for size in (5, 4, 3) if low[:size] in _MONTH_OF), None)


def _year(digits: str | None) -> int | None:
    return None if digits is None else int(digits) + (2000 if len(digits) == 2 else 0)


def _whole(digits: str | None) -> int | None:
    return int(digits) if digits is not None else None


# --- resolving -------------------------------------------------------------------------------


def resolve(when: WrittenTime, *, seen_at: float, tz: str) -> float | None:
    """Return the absolute time of a written moment seen at `seen_at` on a machine in `tz`, or None if there is none."""
    zone = (zone_named(when.zone) if when.zone else None) or zone_named(tz) or UTC
    try:
        return _resolve(when, seen_at, zone)
    except (ValueError, OverflowError, OSError):
        return None


def _resolve(when: WrittenTime, seen_at: float, zone: tzinfo) -> float | None:
    if when.year is not None and when.month is not None and when.day is not None:
        return _at(date(when.year, when.month, when.day), when, zone)
    if not abs(seen_at) < LAST_EPOCH:
        return None
    today = datetime.fromtimestamp(seen_at, zone).date()
    if when.month is not None and when.day is not None:
        days = [made for year in (-1, 0, 1, 2, 3, 4) if (made := _date(today.year + year, when.month, when.day))]
        grace = DATE_GRACE
    elif when.weekday is not None:
        start = today - timedelta(days=7) + timedelta(days=(when.weekday - today.weekday()) % 7)
        days, grace = [start, start + timedelta(days=7), start + timedelta(days=14)], JUST_REOPENED
    elif when.days_ahead is not None:
        days, grace = [today + timedelta(days=when.days_ahead)], DATE_GRACE
    else:
        days, grace = [today + timedelta(days=n) for n in (-1, 0, 1, 2)], JUST_REOPENED
    moments = [_at(day, when, zone) for day in days]
    return next((moment for moment in moments if moment >= seen_at - grace), None)


def _date(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:  # 29 February of a common year
        return None


def _at(day: date, when: WrittenTime, zone: tzinfo) -> float:
    if when.hour is None:
        # A day without a time ends when the day ends: half a second before midnight is still that day.
        wall = datetime(day.year, day.month, day.day, 23, 59, 59, 500_000)
    else:
        wall = datetime(day.year, day.month, day.day, when.hour, when.minute) + timedelta(seconds=when.second)
    # The later of the two readings: a time that occurs twice is the second one, a time that the clocks
    # skip is shifted forward. Waiting too long is cheap; starting too early wastes an attempt.
    return max(wall.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1))


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


def parse_retry_after(text: str, *, seen_at: float, rule: str = "") -> Reset | None:
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
