"""The public path of the fake provider. Its code is in `paceline.simulation.provider`."""

from paceline.simulation.provider.errors import NAMES as ERROR_NAMES
from paceline.simulation.provider.fake import FakeProvider, RequestRecord
from paceline.simulation.provider.scenario import (
    Burst,
    CapacityChange,
    Episode,
    Limits,
    Penalty,
    Scenario,
    Step,
    ToolCall,
    Window,
)

__all__ = [
    "ERROR_NAMES",
    "Burst",
    "CapacityChange",
    "Episode",
    "FakeProvider",
    "Limits",
    "Penalty",
    "RequestRecord",
    "Scenario",
    "Step",
    "ToolCall",
    "Window",
]
