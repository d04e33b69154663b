"""Paceline: runs a fleet of AI agents flat out on the capacity you pay for.

limiter = Limiter(limits={"anthropic/*/opus-*": 4})
async with limiter.slot("anthropic/max-1/opus-4-6", session="s1") as slot:
    ...
"""

from typing import TYPE_CHECKING

from paceline.core import Deferred, ScopeStatus
from paceline.core.values.settings import Rate
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
from paceline.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from paceline.client.daemon_client import Client, ClientSlot
    from paceline.limiter import Limiter, LimiterStatus, Slot
    from paceline.limiter.usage_requests import openai_compatible_usage

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

__getattr__ = lazy_exports(
    __name__,
    {
        "Client": "paceline.client.daemon_client",
        "ClientSlot": "paceline.client.daemon_client",
        "Limiter": "paceline.limiter",
        "LimiterStatus": "paceline.limiter",
        "Slot": "paceline.limiter",
        "openai_compatible_usage": "paceline.limiter.usage_requests",
    },
)
