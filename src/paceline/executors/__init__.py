"""Executors: ways to run a session, behind one interface (`interface.py`)."""

from paceline.executors.interface import (
    Cause,
    Executor,
    Handle,
    IsNeeded,
    Launch,
    Orphan,
    OutputArchive,
    OutputLimits,
    PruneResult,
    SessionPhase,
    SessionState,
)

__all__ = [
    "Cause",
    "Executor",
    "Handle",
    "IsNeeded",
    "Launch",
    "Orphan",
    "OutputArchive",
    "OutputLimits",
    "PruneResult",
    "SessionPhase",
    "SessionState",
]
