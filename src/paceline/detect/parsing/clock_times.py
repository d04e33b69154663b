"""Times as people and programs write them: `3pm (Europe/Paris)`, `Jul 5th, 2026 8:19 PM`, `9월 13일 오전 10:36`.

Here: the grammar of a written moment, and its absolute time in the right zone. Never here: where in a text such a
moment is a reset, and the machine's own clock.
"""

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
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
