"""The lead of one engine: taking it, keeping it, and when the engine no longer trusts it.

In a store of one machine a locked file decides who leads, so a leader never doubts. In a shared store the lease in the
store decides. Another engine takes the lead when the lease has run out, so a leader that could not renew it in time
stops before that: it starts nothing and grants nothing until it has renewed it. The time is measured on the monotonic
clock from before the renewal was sent, so neither a slow answer nor a clock that was set makes the trust too long.
"""

import logging
import math
import time
from collections.abc import Callable
from typing import Final

from paceline.errors import LeadLost, StoreError
from paceline.shared_leadership import SHARED_LEASE_SECONDS, FleetHomes
from paceline.store import Store

log = logging.getLogger("paceline.engine")

RENEWALS_PER_LEASE: Final = 5
"""A server that restarts within most of a lease costs nobody the lead."""
DOUBT_SECONDS: Final = 1.0
"""How long before the end of its lease a leader stops to trust itself: more than a launch or a grant takes."""


class LeaderLease:
    """The lease of one owner. `lease` is its length in a store that is not shared."""

    def __init__(
        self,
        store: Store,
        owner: str,
        *,
        lease: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.owner = owner
        self._store = store
        self.fleet: FleetHomes | None = None
        """The homes of earlier leaders. It is set before the start where machines share the store."""
        self._monotonic = monotonic
        self._length = SHARED_LEASE_SECONDS if store.is_shared else lease
        self._trusted_until = math.inf
        self._renew_at = -math.inf

    def take(self, now: float) -> bool:
        """Take the lead, or extend it. Return False while another engine leads. Raise `LeadLost` if it took over."""
        asked_at = self._monotonic()
        if not self._store.lead(self.owner, until=now + self._length, now=now):
            return False
        if self.fleet is not None and self._renew_at == -math.inf:
            self.fleet.announce()
        if self._store.is_shared:
            self._trusted_until = asked_at + self._length - DOUBT_SECONDS
            self._renew_at = asked_at + self._length / RENEWALS_PER_LEASE
        return True

    def keep(self, now: float) -> None:
        """Extend the lease of a shared store when it is time."""
        if self._store.is_shared and self._monotonic() >= self._renew_at and not self.take(now):
            raise LeadLost("another engine has taken the lead")

    def resign(self) -> None:
        """Give up the lead, if it is still ours. From then on this process stores as others do."""
        self._store.resign(self.owner)

    def drop(self) -> None:
        """Let this process store as others do, after it has lost the lead of a shared store."""
        try:
            if self._store.is_shared:
                self.resign()
        except StoreError as error:
            log.info("there was no lead to give up: %s", error)

    def host_elsewhere(self, attempt_id: str) -> str | None:
        """Return the name of the other machine that the attempt was started on; None for this one."""
        return None if self.fleet is None else self.fleet.host_elsewhere(attempt_id)

    @property
    def is_trusted(self) -> bool:
        """Whether nobody else can lead now."""
        return self._monotonic() < self._trusted_until

    def check(self) -> None:
        """Raise unless nobody else can lead now. A lease that may have run out is renewed before.

        Raise `LeadLost` if another engine leads, and `StoreError` if the store does not answer.
        """
        if not self.is_trusted and not self.take(now=0.0):  # a shared store goes by its own clock
            raise LeadLost("another engine has taken the lead")
