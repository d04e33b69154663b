"""Detection: from what was seen to signals. Pure: no clock, no I/O, no asyncio.

`detect` returns what an observation means, `explain` also names the rules that fired. `StreamReader` reads the
output of an agent as it arrives.
"""

from paceline.core.signals import Signal
from paceline.detect.observation import Observation, Reading
from paceline.detect.observation_reader import explain
from paceline.detect.providers import KNOWN
from paceline.detect.stream import StreamReader

__all__ = ["Observation", "Reading", "StreamReader", "compile_patterns", "detect", "explain"]

_NOTICE = b"Error: 429 rate limit reached, retry after 5 s\n"
_LINES = 256
"""Fewer lines are read without the tests for a flood."""


def detect(observation: Observation) -> list[Signal]:
    """Return what an observation means, as a possibly empty list of signals. Never raises, whatever it is given."""
    return explain(observation).signals


def compile_patterns() -> None:
    """Compile every pattern now, which takes a third of a second.

    Each is otherwise compiled when it is first needed. In a daemon the first errors of a session would then delay
    every answer for a tenth of a second.
    """
    KNOWN.compile_rules()
    reader = StreamReader("claude-code")
    reader.feed(_NOTICE * _LINES, channel="stderr", seen_at=0.0)
    reader.close(exit_code=1, seen_at=0.0)
