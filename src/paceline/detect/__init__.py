"""Detection: from what was seen to signals. Pure: no clock, no I/O, no asyncio.

`detect` returns what an observation means, `explain` also names the rules that fired. `StreamReader` reads the
output of an agent as it arrives.
"""

from paceline.core.signals import Signal
from paceline.detect.observation import Observation, Reading
from paceline.detect.observation_reader import explain
from paceline.detect.stream import StreamReader

__all__ = ["Observation", "Reading", "StreamReader", "detect", "explain"]


def detect(observation: Observation) -> list[Signal]:
    """Return what an observation means, as a possibly empty list of signals. Never raises, whatever it is given."""
    return explain(observation).signals
