"""PURE: observation -> signals. No clock, no I/O, no asyncio.

`detect` answers what an observation means, `explain` also says which rules fired. `StreamReader` reads the
output of an agent as it comes.
"""

from paceline.core.signals import Signal
from paceline.detect.observation import Observation, Reading
from paceline.detect.observation_reader import explain
from paceline.detect.stream import StreamReader

__all__ = ["Observation", "Reading", "StreamReader", "detect", "explain"]


def detect(observation: Observation) -> list[Signal]:
    """What an observation means: a possibly empty list of signals. Never raises, whatever it is given."""
    return explain(observation).signals
