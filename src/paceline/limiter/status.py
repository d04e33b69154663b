"""The use of the global pool as a frozen value, for people, APIs and pages."""

import msgspec

from paceline.core import ScopeStatus


class LimiterStatus(msgspec.Struct, frozen=True):
    """The global pool of sessions and runs. None means unlimited."""

    active_sessions: int
    active_runs: int
    max_parallel_sessions: int | None
    max_parallel_runs: int | None
    available_session_slots: int | None
    available_run_slots: int | None


def limiter_status(sessions: ScopeStatus, runs: ScopeStatus) -> LimiterStatus:
    return LimiterStatus(
        active_sessions=sessions.in_flight,
        active_runs=runs.in_flight,
        max_parallel_sessions=sessions.configured,
        max_parallel_runs=runs.configured,
        available_session_slots=_available(sessions),
        available_run_slots=_available(runs),
    )


def _available(status: ScopeStatus) -> int | None:
    return None if status.limit is None else max(0, status.limit - status.in_flight - status.cooling)
