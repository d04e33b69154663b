"""Fields of error bodies that several providers share: when a limit resets, and the HTTP status.

Here: key-value pairs by their key. Never here: sentences, or headers.
"""

from paceline.detect.kinds import KIND_OF_STATUS
from paceline.detect.parsing.headers import parse_moment
from paceline.detect.parsing.json_objects import Pairs
from paceline.detect.parsing.reset_times import Reset, epoch_seconds, parse_duration, to_number

# Keys without `_` and `-`, in lower case.
_AT = {"resetsat", "resetat", "quotaresettimestamp", "resettime", "nextresettime", "retryat", "resettimestamp", "reset"}
_SECONDS = {
    "resetsinseconds", "resetinseconds", "resetafterseconds", "retryafter", "retryafterseconds", "retrydelay",
    "quotaresetdelay", "resetafter", "resetsin", "retryinseconds",
}  # fmt: skip
_MILLISECONDS = {"retryafterms", "retrydelayms", "resetinms", "resetsinms"}
_STATUS = {
    "status", "statuscode", "status_code", "code", "httpstatuscode", "http_status", "error_status", "api_error_status",
}  # fmt: skip


def field_reset(pairs: Pairs, *, seen_at: float) -> Reset | None:
    """Return the reset that a body states in a field of its own: absolute before relative."""
    relative: Reset | None = None
    for key, value in pairs:
        name = key.lower().replace("_", "").replace("-", "")
        if name in _AT:
            at = parse_moment(value, seen_at) if name != "reset" else None
            if at is None and (number := to_number(value)) is not None:
                at = epoch_seconds(number)
            if at is not None and at != seen_at:
                return Reset(at=at, source="field", rule=f"field.{key}")
        elif relative is None and name in _SECONDS and (after := parse_duration(value)) is not None:
            relative = Reset(after=after, source="field", rule=f"field.{key}")
        elif relative is None and name in _MILLISECONDS and (number := to_number(value)) is not None:
            relative = Reset(after=number / 1000, source="field", rule=f"field.{key}")
    return relative


def field_status(pairs: Pairs) -> int | None:
    """Return the HTTP status that a body states: the first one that means something by itself."""
    for key, value in pairs:
        if key.lower() in _STATUS and (number := to_number(value)) in KIND_OF_STATUS:
            return int(number or 0)
    return None
