"""The signals of one event, one line or one HTTP answer, as the tests ask for them."""

import functools

from paceline.agents.known import LIMITS
from paceline.core.signals import Signal
from paceline.detect import Observation, detect, observation_reader

NOW = 1_790_000_000.0
read_event = functools.partial(observation_reader.read_event, providers=LIMITS)
read_line = functools.partial(observation_reader.read_line, providers=LIMITS)


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
