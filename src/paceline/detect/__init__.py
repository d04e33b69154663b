"""PURE: observation -> signals. No clock, no I/O, no asyncio.

`detect` answers what an observation means, `explain` also says which rules fired.
"""

from paceline.core.signals import Signal
from paceline.detect.observation import Observation, Reading
from paceline.detect.reading import explain

__all__ = ["Observation", "Reading", "detect", "explain"]


def detect(observation: Observation) -> list[Signal]:
    """What an observation means: a possibly empty list of signals. Never raises, whatever it is given."""
    return explain(observation).signals
