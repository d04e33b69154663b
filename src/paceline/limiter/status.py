"""The use of the global pool, and the cooldowns in use, as values for people, APIs and pages."""

from collections.abc import Iterable

import msgspec

from paceline.core import ScopeStatus
from paceline.core.state.limit_table import PatternTable
from paceline.core.values.scopes import is_provider_scope
from paceline.core.values.settings import Cooldown


class LimiterStatus(msgspec.Struct, frozen=True):
    """The global pool of sessions and runs. None means unlimited."""

    active_sessions: int
    active_runs: int
    max_parallel_sessions: int | None
    max_parallel_runs: int | None
    available_session_slots: int | None
    available_run_slots: int | None


class CooldownsInUse(dict[str, Cooldown]):
    """Cooldowns by scope or pattern. `sources` has the entry that each comes from, or "default"."""

    def __init__(self, configured: dict[str, Cooldown], statuses: Iterable[ScopeStatus]) -> None:
        super().__init__(configured)
        self.sources = {scope: scope for scope in configured}
        table = PatternTable(configured, {})
        for status in statuses:
            if is_provider_scope(status.scope) and status.scope not in self:
                entry = table.entry_on_path(status.scope)
                self[status.scope], self.sources[status.scope] = status.cooldown, entry[0] if entry else "default"


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
