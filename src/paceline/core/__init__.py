"""PURE: who may enter, in which order, how many, until when. No clock, no I/O, no asyncio.

Read `governor.py` first; it is the table of contents of the rest.
"""

from paceline.core.governor import Governor
from paceline.core.state.snapshot import Snapshot
from paceline.core.values.settings import GovernorSettings
from paceline.core.values.status import ScopeStatus, WindowStatus
from paceline.core.values.tickets import Deferred, Effect, Expired, Granted, PollUsage, Ticket, Verdict

__all__ = [
    "Deferred",
    "Effect",
    "Expired",
    "Governor",
    "GovernorSettings",
    "Granted",
    "PollUsage",
    "ScopeStatus",
    "Snapshot",
    "Ticket",
    "Verdict",
    "WindowStatus",
]
