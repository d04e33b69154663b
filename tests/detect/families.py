"""Generators of the format families: messages as providers write them, with the right answer beside each.

For hypothesis; the suite is strong with these alone, without the sample messages.
"""

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from zoneinfo import ZoneInfo

import msgspec
from hypothesis import assume
from hypothesis import strategies as st
from tests.detect.scoring import SOME_TIME

from paceline.detect import Observation

ZONES = (
    "Europe/Paris",
    "America/New_York",
    "America/Los_Angeles",
    "Asia/Kolkata",
    "Asia/Tokyo",
    "Australia/Sydney",
    "America/Port_of_Spain",
    "America/Argentina/Buenos_Aires",
    "Etc/GMT+5",
    "UTC",
)
YEAR = 365 * 86400


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A message, the kind it means, and when it ends (absolute); None where it states no end."""

    observation: Observation
    kind: str
    resets_at: float | None = None


def seen(text: str, *, provider: str = "claude-code", channel: str = "screen", **more: object) -> Observation:
    fields = {"seen_at": SOME_TIME, "tz": "UTC", **more}
    return Observation(provider=provider, channel=channel, text=text, **fields)  # type: ignore[arg-type]


seen_ats = st.integers(0, 2 * YEAR).map(lambda seconds: SOME_TIME + seconds)
zones = st.sampled_from(ZONES)
apostrophes = st.sampled_from(("'", "’"))
dots = st.sampled_from((" · ", " ∙ ", " \u00a0·\u00a0", "\n· "))

# --- clocks ------------------------------------------------------------------------------------


def next_at(seen_at: float, zone: str, hour: int, minute: int) -> float:
    """Return the next time that a clock in the zone shows this. It walks by minutes, unlike the code under test."""
    tz = ZoneInfo(zone)
    at = datetime.fromtimestamp(seen_at - seen_at % 60 + 60, UTC)
    for _ in range(2 * 24 * 60):
        local = at.astimezone(tz)
        if (local.hour, local.minute) == (hour, minute):
            return at.timestamp()
        at += timedelta(minutes=1)
    raise AssertionError("the clocks skip this time on two days in a row")


def written_clock(hour: int, minute: int, style: str) -> str:
    if style == "24h":
        return f"{hour}:{minute:02}"
    half, spaced = ("am" if hour < 12 else "pm"), style == "spaced"
    digits = f"{hour % 12 or 12}" + (f":{minute:02}" if minute or spaced else "")
    return f"{digits} {half.upper()}" if spaced else f"{digits}{half}"


claude_leads = st.sampled_from(
    (
        "You{}ve hit your limit",
        "You{}ve hit your session limit",
        "You{}ve hit your weekly limit",
        "You{}ve hit your Opus limit",
        "You{}re out of extra usage",
        "5-hour limit reached",
        "Session limit reached",
        "Weekly limit reached",
        "Opus weekly limit reached",
        "Limit reached",
    )
)


@st.composite
def clock_banners(draw: st.DrawFn) -> Case:
    """Generate `You've hit your limit · resets 3:45pm (Europe/Paris)`, in all its spellings."""
    seen_at = draw(seen_ats)
    zone, named = draw(zones), draw(st.booleans())
    local = datetime.fromtimestamp(seen_at, ZoneInfo(zone)) + timedelta(minutes=draw(st.integers(1, 23 * 60)))
    hour, minute = local.hour, draw(st.sampled_from((0, local.minute)))
    at = next_at(seen_at, zone, hour, minute)
    assume(at - seen_at < 23 * 3600)  # a time that has just passed means now
    lead = draw(claude_leads).format(draw(apostrophes))
    clock = written_clock(hour, minute, draw(st.sampled_from(("24h", "short", "spaced"))))
    text = f"{lead}{draw(dots)}resets {draw(st.sampled_from(('', 'at ')))}{clock}" + (f" ({zone})" if named else "")
    return Case(observation=seen(text, seen_at=seen_at, tz=zone), kind="quota_window", resets_at=at)


@st.composite
def dated_banners(draw: st.DrawFn) -> Case:
    """Generate resets on another day: `Apr 24, 6am`, `Apr 23 at 4pm`, `Jul 5th, 2026 8:19 PM`."""
    seen_at, zone = draw(seen_ats), draw(zones)
    day = datetime.fromtimestamp(seen_at, ZoneInfo(zone)).date() + timedelta(days=draw(st.integers(1, 40)))
    hour, minute = draw(st.integers(4, 23)), draw(st.integers(0, 59))
    at = datetime(day.year, day.month, day.day, hour, minute, tzinfo=ZoneInfo(zone)).timestamp()
    suffix = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd", 31: "st"}.get(day.day, "th")
    short, long = f"{day:%b} {day.day}", f"{day:%B} {day.day}"
    clock, spaced = written_clock(hour, minute, "short"), written_clock(hour, minute, "spaced")
    text = draw(
        st.sampled_from(
            (
                f"You've hit your weekly limit · resets {short}, {clock} ({zone})",
                f"You've hit your limit · resets {short} at {clock} ({zone})",
                f"You've hit your usage limit. Upgrade to Pro or try again at {short}{suffix}, {day.year} {spaced}.",
                f"You're out of Codex messages. Your rate limit resets on {short}, {day.year}, {spaced}.",
                f"You've reached your monthly quota. It will reset on {long}, {day.year} at {spaced}.",
                f"You have exceeded the 5-hour usage quota. It will reset at {day} {hour:02}:{minute:02}:00",
                f"Usage limit reached. Resets {hour}:{minute:02} on {day.day} {day:%b}",
                f"Weekly limit reached ∙ resets {day:%A}, {short}, {clock}",
            )
        )
    )
    return Case(observation=seen(text, seen_at=seen_at, tz=zone), kind="quota_window", resets_at=at)


@st.composite
def weekday_banners(draw: st.DrawFn) -> Case:
    """Generate `resets Mon 12:00am`: the next such day."""
    seen_at, zone = draw(seen_ats), draw(zones)
    day = datetime.fromtimestamp(seen_at, ZoneInfo(zone)).date() + timedelta(days=draw(st.integers(1, 6)))
    hour, minute = draw(st.integers(4, 23)), draw(st.integers(0, 59))
    at = datetime(day.year, day.month, day.day, hour, minute, tzinfo=ZoneInfo(zone)).timestamp()
    name = f"{day:%a}" if draw(st.booleans()) else f"{day:%A}"
    text = f"You've hit your weekly limit · resets {name} {written_clock(hour, minute, 'spaced')}"
    return Case(observation=seen(text, seen_at=seen_at, tz=zone), kind="quota_window", resets_at=at)


# --- durations ---------------------------------------------------------------------------------

parts = st.tuples(st.integers(0, 28), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
WORDS = (("day", "d", 86400), ("hour", "h", 3600), ("minute", "m", 60), ("second", "s", 1))


def written_duration(values: tuple[int, ...], style: str) -> str:
    found = [(n, word, letter) for n, (word, letter, _) in zip(values, WORDS, strict=True) if n] or [(0, "second", "s")]
    if style == "words":
        return " ".join(f"{n} {word}{'' if n == 1 else 's'}" for n, word, _ in found)
    if style == "and":
        return " and ".join(f"{n} {word}s" for n, word, _ in found)
    if style == "short":
        names = {"d": "d", "h": "hr", "m": "min", "s": "sec"}
        return " ".join(f"{n}{names[letter]}" for n, _, letter in found)
    return ("" if style == "go" else " ").join(f"{n}{letter}" for n, _, letter in found)


@st.composite
def duration_banners(draw: st.DrawFn) -> Case:
    """Generate `try again in 5 days 22 hours`, `reset after 8h44m7s`, `Resets in 4hr 19min`, `resets in 29d 31m`."""
    values = draw(parts.filter(lambda values: sum(values[:2]) > 0))
    seconds = sum(n * size for n, (_, _, size) in zip(values, WORDS, strict=True))
    seen_at = draw(seen_ats)
    long = written_duration(values, draw(st.sampled_from(("words", "and", "short", "letters"))))
    text = draw(
        st.sampled_from(
            (
                f"You've hit your usage limit. Upgrade to Pro or try again in {long}.",
                f"5-hour usage limit reached. Resets in {long}. To continue, enable usage from your balance",
                f"weekly usage limit reached. It will reset in {long}.",
                f"You have exhausted your capacity on this model. Your quota will reset after {long}.",
                f"Subscription quota exceeded. Retry in {long}.",
                f"Individual quota reached. Resets in {written_duration(values, 'go')}.",
            )
        )
    )
    return Case(observation=seen(text, seen_at=seen_at), kind="quota_window", resets_at=seen_at + seconds)


@st.composite
def short_waits(draw: st.DrawFn) -> Case:
    """Generate rate limits with seconds: `1m26.4s`, `28ms`, `14.036s`, `35 seconds`."""
    seen_at = draw(seen_ats)
    milliseconds = draw(st.integers(1, 290_000))
    minutes, rest = divmod(milliseconds / 1000, 60)
    written = draw(st.sampled_from((f"{milliseconds}ms", f"{milliseconds / 1000:g}s", f"{int(minutes)}m{rest:.3f}s")))
    text = draw(
        st.sampled_from(
            (
                f"Rate limit reached for gpt-5 in organization org-1 on tokens per min (TPM): Limit 30000, Used 29000, "
                f"Requested 5000. Please try again in {written}.",
                f"stream error: Rate limit is exceeded. Try again in {written}; retrying 1/5 in 209ms",
                f"You have exhausted your capacity on this model. Your quota will reset after {written}.",
                f"Too Many Requests [retrying in {written} attempt #3]",
                f"You exceeded your current quota. * Quota exceeded for metric: x/requests, limit: 10\n"
                f"Please retry in {written}.",
            )
        )
    )
    observation = seen(text, provider="openai-api", seen_at=seen_at)
    return Case(observation=observation, kind="rate_limit", resets_at=seen_at + milliseconds / 1000)


# --- structured --------------------------------------------------------------------------------


@st.composite
def epochs(draw: st.DrawFn) -> Case:
    """Generate epochs in seconds and milliseconds, in events, fields and after a bar."""
    seen_at = draw(seen_ats)
    at = int(seen_at) + draw(st.integers(400, 30 * 86400))
    number = at * draw(st.sampled_from((1, 1000)))
    event = {"status": "rejected", "resetsAt": number, "rateLimitType": "five_hour"}
    error = {"type": "usage_limit_reached", "message": "The usage limit has been reached", "resets_at": number}
    text = draw(
        st.sampled_from(
            (
                f"Claude AI usage limit reached|{number}",
                json.dumps({"type": "rate_limit_event", "rate_limit_info": event}),
                json.dumps({"type": "error", "status": 429, "error": error}),
                json.dumps({"type": "turn.failed", "error": {"message": json.dumps({"error": error})}}),
            )
        )
    )
    return Case(observation=seen(text, channel="stdout-json", seen_at=seen_at), kind="quota_window", resets_at=at)


@st.composite
def retry_infos(draw: st.DrawFn) -> Case:
    """Generate Google's `RetryInfo` and `QuotaFailure`, nested in as many strings as a proxy chain makes."""
    seen_at, seconds = draw(seen_ats), draw(st.integers(1, 280))
    period, kind = draw(st.sampled_from((("PerMinute", "rate_limit"), ("PerDay", "quota_window"))))
    violation = {"quotaId": f"GenerateRequests{period}PerProjectPerModel-FreeTier", "quotaValue": "50"}
    details = [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation]},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{seconds}s"},
    ]
    message = "You exceeded your current quota, please check your plan and billing details."
    body: object = {
        "error": {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED", "details": details},
    }
    for _ in range(draw(st.integers(0, 3))):
        body = {"error": {"message": json.dumps(body, indent=draw(st.sampled_from((None, 2)))), "code": 429}}
    text = json.dumps(body)
    if draw(st.booleans()):
        text = f"✕ [API Error: {text}]"
    observation = seen(text, provider="gemini-api", channel="http", status=429, seen_at=seen_at)
    return Case(observation=observation, kind=kind, resets_at=seen_at + seconds)


@st.composite
def retry_after_headers(draw: st.DrawFn) -> Case:
    """Generate `Retry-After` as seconds, fraction, HTTP date and milliseconds, under any spelling of its name."""
    seen_at, seconds = float(int(draw(seen_ats))), draw(st.integers(0, 86400))
    date = format_datetime(datetime.fromtimestamp(seen_at + seconds, UTC), usegmt=True)
    name, value = draw(
        st.sampled_from(
            (
                ("retry-after", str(seconds)),
                ("Retry-After", f"{seconds}.0"),
                ("RETRY-AFTER", date),
                ("retry-after-ms", str(seconds * 1000)),
                ("x-ratelimit-reset-tokens", f"{seconds}s"),
            )
        )
    )
    # No bucket takes an hour to refill: so long a wait is that of a window.
    refused = "rate_limit" if seconds < 3600 else "quota_window"
    status, kind = draw(st.sampled_from(((429, refused), (529, "overloaded"), (503, "overloaded"))))
    observation = seen(
        "", provider="http-generic", channel="http", status=status, headers={name: value}, seen_at=seen_at
    )
    return Case(observation=observation, kind=kind, resets_at=seen_at + seconds)


@st.composite
def unified_headers(draw: st.DrawFn) -> Case:
    """Generate Anthropic's unified windows: of the rejected ones the latest reset counts."""
    seen_at = draw(seen_ats)
    headers = {"anthropic-ratelimit-unified-status": "rejected"}
    closed = []
    windows = draw(st.lists(st.sampled_from(("5h", "7d", "7d_opus", "7d_oi")), min_size=1, max_size=4, unique=True))
    for index, window in enumerate(windows):
        at = int(seen_at) + draw(st.integers(60, 7 * 86400))
        rejected = index == 0 or draw(st.booleans())
        prefix = f"anthropic-ratelimit-unified-{window}"
        headers[f"{prefix}-status"] = "rejected" if rejected else "allowed"
        headers[f"{prefix}-reset"] = str(at)
        headers[f"{prefix}-utilization"] = "1.02" if rejected else "0.4"
        closed += [at] if rejected else []
    observation = seen("", provider="anthropic-api", channel="http", status=429, headers=headers, seen_at=seen_at)
    return Case(observation=observation, kind="quota_window", resets_at=max(closed))


# --- layout ------------------------------------------------------------------------------------


def wrapped(text: str, width: int, *, hard: bool) -> str:
    """Break a text as a terminal of this width does: between words, or anywhere."""
    if hard:
        return "\n".join(text[start : start + width] for start in range(0, len(text), width))
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return "\n".join([*lines, line])


def boxed(text: str) -> str:
    """Put a text into a frame, padded to its width."""
    lines = text.split("\n")
    width = max(map(len, lines))
    return "\n".join((f"╭{'─' * (width + 2)}╮", *(f"│ {line:<{width}} │" for line in lines), f"╰{'─' * (width + 2)}╯"))


@st.composite
def laid_out(draw: st.DrawFn) -> Case:
    """Generate any banner, wrapped, framed, coloured or bulleted."""
    case = draw(st.one_of(dated_banners(), duration_banners()))
    text = case.observation.text
    assert isinstance(text, str)
    text = wrapped(text, draw(st.integers(24, 120)), hard=False)
    if draw(st.booleans()):
        text = boxed(text)
    if draw(st.booleans()):
        text = f"\x1b[31m{text}\x1b[0m"
    if draw(st.booleans()):
        text = text.replace(" ", "\u00a0")
    observation = msgspec.structs.replace(case.observation, text=text)
    return Case(observation=observation, kind=case.kind, resets_at=case.resets_at)


# --- what is no limit --------------------------------------------------------------------------

subjects = st.sampled_from(("rate limit", "usage limit", "quota", "weekly limit", "429", "overloaded_error"))


@st.composite
def harmless(draw: st.DrawFn) -> Case:
    """Generate prose, code, diffs, test logs, panels and numbers that merely mention limits."""
    subject, number = draw(subjects), draw(st.integers(1, 9999))
    text = draw(
        st.sampled_from(
            (
                f"⏺ I refactored the {subject} handling for you and added {number} tests.",
                f"⏺ The docs say that a {subject} of {number} requests applies, so the importer should back off.",
                f"When the {subject} is reached, the client should wait and retry.",
                f"PR #429{number} merged",
                f"{number}429 passed, 3 skipped in 4.29s",
                f"+    raise RateLimitError('{subject} exceeded')",
                f"-    if response.status == 429:  # {subject}",
                f"src/limits.py:{number}: the {subject} is checked here",
                f"def test_{number}_{subject.replace(' ', '_')}_exceeded(self):",
                f"curl: (22) The requested URL returned error: 429 {subject} exceeded",
                f"npm ERR! 429 Too Many Requests - GET https://registry.npmjs.org/x{number}",
                f"Current week (all models)  {number % 100}% used\nResets 10pm (Europe/Berlin)",
                f"5h limit: [████░░] {number % 100}% left (resets 11:40)",
                f"✻ Cogitated for {number % 60}m 51s",
                f"Heads up, you have less than {number % 100}% of your {subject} left.",
                f"console.log('{subject} reached');",
                json.dumps(
                    {"type": "assistant", "message": {"content": [{"type": "text", "text": f"{subject} exceeded"}]}}
                ),
                json.dumps({"type": "user", "message": {"content": [{"type": "tool_result", "content": "429 quota"}]}}),
                json.dumps({"type": "item.completed", "item": {"type": "agent_message", "text": f"{subject} reached"}}),
                json.dumps({"type": "result", "is_error": False, "result": f"Done: the {subject} is handled."}),
            )
        )
    )
    return Case(observation=seen(text, channel=draw(st.sampled_from(("screen", "stdout", "stderr")))), kind="none")
