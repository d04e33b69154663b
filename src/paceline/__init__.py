"""Paceline: runs a fleet of AI agents flat out on the capacity you pay for.

limiter = Limiter(limits={"anthropic/*/opus-*": 4})
async with limiter.slot("anthropic/max-1/opus-4-6", session="s1") as slot:
    ...
"""

from paceline.client import Client, ClientSlot
from paceline.core import Deferred, ScopeStatus
from paceline.core.values.rates import Rate
from paceline.errors import (
    CapacityError,
    DaemonError,
    DaemonUnreachable,
    InvalidLimit,
    MaxRunsExceeded,
    MaxSessionsExceeded,
    PacelineError,
    SlotLost,
    SlotTimeout,
)
from paceline.events import Event
from paceline.limiter import Limiter
from paceline.limiter.slot import Slot
from paceline.limiter.status import LimiterStatus
from paceline.limiter.usage_polls import openai_compatible_usage

__all__ = [
    "CapacityError",
    "Client",
    "ClientSlot",
    "DaemonError",
    "DaemonUnreachable",
    "Deferred",
    "Event",
    "InvalidLimit",
    "Limiter",
    "LimiterStatus",
    "MaxRunsExceeded",
    "MaxSessionsExceeded",
    "PacelineError",
    "Rate",
    "ScopeStatus",
    "Slot",
    "SlotLost",
    "SlotTimeout",
    "openai_compatible_usage",
]
