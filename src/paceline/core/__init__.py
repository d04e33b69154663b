"""PURE: who may enter, in which order, how many, until when. No clock, no I/O, no asyncio.

Read `governor.py` first; it is the table of contents of the rest.
"""

from paceline.core.governor import Governor
from paceline.core.settings import GovernorSettings
from paceline.core.snapshot import Snapshot
from paceline.core.status import ScopeStatus, WindowStatus
from paceline.core.tickets import Ticket
from paceline.core.verdicts import Deferred, Effect, Expired, Granted, PollUsage, Verdict

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
