"""How a session is run: one interface, several ways."""

from paceline.executors.interface import Cause, Executor, Handle, Launch, Phase, SessionState, Stray

__all__ = ["Cause", "Executor", "Handle", "Launch", "Phase", "SessionState", "Stray"]
