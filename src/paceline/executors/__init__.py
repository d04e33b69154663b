"""Executors: ways to run a session, behind one interface (`interface.py`)."""

from paceline.executors.interface import Cause, Executor, Handle, Launch, Orphan, SessionPhase, SessionState

__all__ = ["Cause", "Executor", "Handle", "Launch", "Orphan", "SessionPhase", "SessionState"]
