"""What was seen, what it may mean, and the reading of it. Values and their tables only.

Never here: a decision, sentences, or anything that only one provider means.
"""

from enum import IntEnum
from typing import Literal

import msgspec

from paceline.core.signals import Cause, Reach, Signal


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was seen: a line, a screen, an event or an HTTP answer.

    `seen_at` is wall time (Unix seconds). `tz` is the zone of the machine it was seen on: a clock time
    without a zone is read there. `channel` is `screen`, `stderr`, `stdout`, `stdout-json` or `http`.
    """

    provider: str = "openai-compatible"
    channel: str = "screen"
    text: str | bytes | None = None
    status: int | None = None
    headers: dict[str, str] | None = None
    exit_code: int | None = None
    seen_at: float = 0.0
    tz: str = "UTC"


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What an observation means, and the names of the rules that decided, in the order they fired."""

    signals: list[Signal] = []
    rules: tuple[str, ...] = ()


NOTHING = Reading()


Kind = Literal["quota", "rate", "overloaded", "platform", "billing", "auth", "unreachable", "none"]

KIND_OF_STATUS: dict[int, Kind] = {
    401: "auth",
    402: "billing",
    423: "platform",
    429: "rate",
    503: "overloaded",
    529: "overloaded",
}
"""What a bare HTTP status means for the account. 403 is missing on purpose: providers also send it for spent plans,
regions and content, so a single answer proves nothing. `stream/record.py` adds it for runs that ended so."""

KIND_OF_ERROR_NAME: dict[str, Kind] = {
    "rate_limit": "rate",
    "overloaded": "overloaded",
    "server_error": "overloaded",
    "billing_error": "billing",
    "authentication_failed": "auth",
}
"""The names for errors that several agent CLIs put into their retry and error events."""


def kind_of_status(status: float | None) -> Kind | None:
    """Return what an HTTP status means by itself, or None."""
    return KIND_OF_STATUS.get(int(status or 0))


def kind_of_failure(status: float | None) -> Kind | None:
    """Return what the status of a failed model call means: as `kind_of_status`, and every 5xx is an overload."""
    return kind_of_status(status) or ("overloaded" if status and status >= 500 else None)


FIVE_MINUTES = 300.0
"""A shorter wait for a quota is a burst: no provider has windows of minutes."""
HOUR = 3600.0
"""A longer wait for a rate is a window: no bucket takes an hour to refill."""


class Stage(IntEnum):
    """The order in which rules are tried."""

    EXACT = 0  # a sentence that means this whatever else is in the text
    PLATFORM = 10
    BILLING = 20
    QUOTA = 30
    METERED = 35  # a rate with its period, beside which "high demand" is only an excuse
    OVERLOADED = 40
    SIZE = 45  # of one request: it may name the rate that it does not fit into
    RATE = 50
    CODE = 60  # error codes and types: they are wrong more often than sentences
    WEAK = 70
    UNREACHABLE = 74  # whoever names a limit has answered
    SIGN = 75  # a retry is under way, and its reason is not stated
    AUTH = 80


STAGE_OF: dict[Kind, Stage] = {
    "platform": Stage.PLATFORM,
    "billing": Stage.BILLING,
    "quota": Stage.QUOTA,
    "overloaded": Stage.OVERLOADED,
    "rate": Stage.RATE,
    "auth": Stage.AUTH,
    "unreachable": Stage.UNREACHABLE,
    "none": Stage.EXACT,
}


class Meaning(msgspec.Struct, frozen=True, kw_only=True):
    """What words mean for an account.

    `short_wait`: a quota whose words mean a rate limit if the wait they name is shorter than this;
    `long_wait`: a rate limit whose words mean a quota if the wait is longer.
    `advice`: what a person can do about it, where the words themselves do not say it.
    """

    name: str
    kind: Kind
    stage: Stage
    window: str | None = None
    reach: Reach | None = None
    cause: Cause | None = None
    short_wait: float | None = None
    long_wait: float | None = None
    advice: str | None = None
