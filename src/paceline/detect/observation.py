"""An observation and its reading. Values only; nothing here decides anything."""

import msgspec

from paceline.core.signals import Signal


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
