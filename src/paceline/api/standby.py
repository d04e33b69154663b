"""What the API reads on a process that stands by: everything comes from the store, as the leader has stored it.

Never here: changes. They are passed on to the leader (`leader_proxy.py`).
"""

from collections.abc import Callable
from typing import Final, NoReturn

from paceline.clock import Clock
from paceline.core import Deferred, Governor, ScopeStatus
from paceline.engine.capacity.leases import Leases
from paceline.engine.offline_state import OfflineState
from paceline.engine.settings import EngineSettings
from paceline.errors import LeadLost
from paceline.metrics import MetricsRegistry
from paceline.store import Store
from paceline.views.why import stored_waits

FRESH_SECONDS: Final = 1.0
"""How old the state may be that requests see: it is rebuilt from the store, which takes milliseconds."""


class StandbyEngine:
    """In place of the engine, for an API whose process does not lead."""

    def __init__(self, store: Store, settings: EngineSettings, clock: Clock) -> None:
        self.store = store
        self.settings = settings
        self.clock = clock
        self.metrics = MetricsRegistry()
        self.limiter = StoredStatuses(self)
        self._state: OfflineState | None = None
        self._read_at = 0.0

    @property
    def governor(self) -> Governor:
        """The Governor as the leader has stored it, with a ticket for everything that runs."""
        now = self.clock.now()
        if self._state is None or not 0 <= now - self._read_at < FRESH_SECONDS:
            self._state, self._read_at = OfflineState(self.store, self.settings, now), now
        return self._state.governor

    @property
    def leases(self) -> Leases:
        self._refuse()

    def wait_reasons(self) -> dict[str, Deferred]:
        return stored_waits(self.store)

    def listen(self, on_stored: Callable[[], object]) -> Callable[[], None]:
        """Return a function that does nothing: events of other processes are found by polling."""
        return lambda: None

    def apply_commands(self) -> None:
        self._refuse()

    def close(self) -> None:
        """Do nothing: there is nothing to give back."""

    def _refuse(self) -> NoReturn:
        raise LeadLost("this process stands by; the leader carries out changes")


class StoredStatuses:
    """The statuses of scopes, as the leader has stored them."""

    def __init__(self, engine: StandbyEngine) -> None:
        self._engine = engine

    def statuses(self) -> list[ScopeStatus]:
        return self._engine.governor.statuses(now=self._engine.clock.now())

    def scope_status(self, scope: str) -> ScopeStatus | None:
        return self._engine.governor.status(scope, now=self._engine.clock.now())
