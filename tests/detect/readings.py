"""The signals of one event, one line or one HTTP answer, as the tests ask for them."""

from paceline.core.signals import Signal
from paceline.detect import Observation, detect
from paceline.detect.observation_reader import read_event, read_line

NOW = 1_790_000_000.0


def event_signals(**fields: object) -> list[Signal]:
    return read_event("claude-code", fields, seen_at=NOW, tz="UTC")


def line_signals(text: str, provider: str = "claude-code", channel: str = "stderr") -> list[Signal]:
    return read_line(provider, text, channel=channel, seen_at=NOW, tz="UTC")


def answer_signals(
    status: int | None, headers: dict[str, str] | None = None, text: str = "", provider: str = "x"
) -> list[Signal]:
    return detect(
        Observation(provider=provider, channel="http", status=status, headers=headers, text=text, seen_at=NOW, tz="UTC")
    )
