"""The judgement about a supervisor that lives but does not work: it is stopped, or stuck in the kernel.

Such a supervisor would keep its slot forever, because only it can end its session at a limit of time. Times are
monotonic, as the supervisor's own are: the time in which a laptop sleeps does not count.

Here: when it has lost its session. Never here: killing it (process.py).
"""

import msgspec

from paceline.executors.interface import Cause
from paceline.executors.proc_table import stat_fields

SLACK_SECONDS = 30.0
"""How long a supervisor may take after time-out and grace: it ends leftovers (5 s), and the machine may be busy."""
CHECK_SECONDS = 10.0
"""How often the state of a supervisor is read: one small file per session, so not at every heartbeat."""
_STOPPED = (b"T", b"t")
"""The states of a process that was stopped by a signal or by a debugger."""


class SessionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of time of a session, and the monotonic time at which it began."""

    since: float
    timeout: float | None
    stall: float | None
    grace: float


class SupervisorWatch:
    """Finds out whether one supervisor still does its work."""

    def __init__(self) -> None:
        self._check_at = 0.0
        self._stopped_since: float | None = None

    def verdict(self, pid: int, limits: SessionLimits, now: float) -> Cause | None:
        """Return the limit at which the supervisor should have ended its session, and did not."""
        if limits.timeout is not None and now > limits.since + limits.timeout + limits.grace + SLACK_SECONDS:
            return "timed_out"
        if now < self._check_at:
            return None
        self._check_at = now + CHECK_SECONDS
        fields = stat_fields(pid)
        if not fields or fields[0] not in _STOPPED:
            self._stopped_since = None
            return None
        if self._stopped_since is None:
            self._stopped_since = now
        is_too_long = limits.stall is not None and now > self._stopped_since + limits.stall + limits.grace
        return "stalled" if is_too_long else None
