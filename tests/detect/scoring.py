"""The score of a reading against the sample messages, whose right answers are computed here independently.

Nothing in this file uses the code under test, so that both cannot be wrong in the same way.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
from tests.detect.sample_files import MESSAGES, rows_of

from paceline.core.signals import Signal
from paceline.detect import Observation

KINDS = {
    "QuotaClosed": "quota_window",
    "RateLimited": "rate_limit",
    "Overloaded": "overloaded",
    "PlatformLimit": "platform_limit",
    "BillingStop": "billing",
    "Unreachable": "unreachable",
}
FIXED_OFFSETS = {"PDT": -7, "PST": -8, "EDT": -4, "EST": -5, "UTC": 0, "GMT": 0}
SOME_TIME = 1_790_012_345.0  # a Monday in September 2026
GRACE = 300.0


class Answer(msgspec.Struct, frozen=True):
    """The right reading of a sample."""

    kind: str
    resets: dict[str, object] | None = None
    limit: float | None = None
    window: str | None = None


class Sample(msgspec.Struct, frozen=True):
    """One message of a sample file."""

    id: str
    provider: str
    channel: str
    text: str
    expected: Answer
    status: int | None = None
    headers: dict[str, str] | None = None
    alt_kinds: list[str] = []
    alt_resets: list[dict[str, object]] = []
    note: str = ""

    @property
    def kinds(self) -> set[str]:
        return {self.expected.kind, *self.alt_kinds}

    @property
    def resets(self) -> list[dict[str, object]]:
        return [reset for reset in (self.expected.resets, *self.alt_resets) if reset]

    def seen(self, seen_at: float, tz: str) -> Observation:
        return Observation(
            provider=self.provider,
            channel=self.channel,
            text=self.text,
            status=self.status,
            headers=self.headers,
            seen_at=seen_at,
            tz=tz,
        )


def samples(file: Path = MESSAGES) -> list[Sample]:
    return [msgspec.convert(json.loads(line), Sample) for line in rows_of(file)]


def kind_of(signals: list[Signal]) -> str:
    return next((KINDS[name] for signal in signals if (name := type(signal).__name__) in KINDS), "none")


def times_of(signals: list[Signal], seen_at: float) -> list[float]:
    """Return the absolute resets that signals about capacity carry."""
    times = []
    for signal in signals:
        if type(signal).__name__ in KINDS:
            at, after = getattr(signal, "resets_at", None), getattr(signal, "retry_after", None)
            times += [at] if at is not None else [seen_at + after] if after is not None else []
    return times


def moments_to_see(sample: Sample) -> Iterator[tuple[float, str]]:
    """Yield when and in which zone a sample may have been seen: shortly before its reset if that is a fixed time."""
    first = sample.resets[0] if sample.resets else None
    if first is not None and (fixed := _fixed_time(first)) is not None:
        for ahead in (45.0, 2900.0) if sample.expected.kind == "rate_limit" else (45.0, 2900.0, 30_000.0):
            yield fixed - ahead, "UTC"
        return
    for later in (0.0, 50_000.0, 98 * 86400.0, 101.4 * 86400.0):
        yield SOME_TIME + later, "Europe/Berlin"
    yield SOME_TIME, "America/Los_Angeles"


def right_times(sample: Sample, seen_at: float, tz: str) -> list[float]:
    return [_right_time(reset, seen_at, tz) for reset in sample.resets]


def just_passed(sample: Sample, seen_at: float, tz: str) -> bool:
    """Return whether a clock time is a few minutes back: it means now, so the next occurrence is not expected."""
    return any(
        reset["type"] == "clock" and 86400 - GRACE <= _right_time(reset, seen_at, tz) - seen_at <= 86400 + 3600
        for reset in sample.resets
    )


def _zone(name: object, tz: str) -> tzinfo:
    if isinstance(name, str) and name in FIXED_OFFSETS:
        return timezone(timedelta(hours=FIXED_OFFSETS[name]))
    return ZoneInfo(name if isinstance(name, str) else tz)


def _fixed_time(reset: dict[str, object]) -> float | None:
    if reset["type"] == "epoch":
        return float(str(reset["value"]))
    if reset["type"] == "datetime":
        return datetime.fromisoformat(str(reset["value"]).replace("Z", "+00:00")).timestamp()
    if reset["type"] == "clock" and len(str(reset["date"])) == len("2026-01-01"):
        return _on(str(reset["date"]), reset, _zone(reset["tz"], "UTC"))
    return None


def _right_time(reset: dict[str, object], seen_at: float, tz: str) -> float:
    if reset["type"] == "duration_s":
        return seen_at + float(str(reset["value"]))
    zone = _zone(reset.get("tz"), tz)
    fixed = _fixed_time(reset)
    if fixed is not None and reset["type"] != "clock":
        return fixed
    today = datetime.fromtimestamp(seen_at, zone)
    if reset["date"]:
        return _dated(reset, today, seen_at, zone)
    for days in range(9):
        day = (today + timedelta(days=days)).date()
        weekday = reset["weekday"]
        if weekday and day.strftime("%a") != weekday:
            continue
        at = _on(day.isoformat(), reset, zone)
        if at > seen_at:
            return at
    raise AssertionError(f"no such time: {reset}")


def _dated(reset: dict[str, object], today: datetime, seen_at: float, zone: tzinfo) -> float:
    date = str(reset["date"])
    if len(date) == len("2026-01-01"):
        return _on(date, reset, zone)
    month_day = date if "-" in date else datetime.strptime(f"2024 {date}", "%Y %b %d").strftime("%m-%d")
    years = (f"{today.year + step}-{month_day}" for step in (-1, 0, 1))
    return next(at for year in years if (at := _on(year, reset, zone)) >= seen_at - 2 * 86400)


def _on(date: str, reset: dict[str, object], zone: tzinfo) -> float:
    clock = str(reset["time"] or "23:59:59")
    wall = datetime.fromisoformat(f"{date}T{clock}")
    return max(wall.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1))


def utc(*parts: int) -> float:
    """Return the Unix time of a moment in UTC."""
    return datetime(*parts, tzinfo=UTC).timestamp()  # type: ignore[misc, arg-type]
