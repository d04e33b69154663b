"""The lead of one engine: taking it, keeping it, and when the engine no longer trusts it.

In a store of one machine a locked file decides who leads, so a leader never doubts. In a shared store the lease in the
store decides. Another engine takes the lead when the lease has run out, so a leader that could not renew it in time
stops before that: it starts nothing and grants nothing until it has renewed it. The time is measured since the boot,
from before the renewal was sent. So neither a slow answer, nor a clock that was set, nor a machine that slept makes the
trust too long.
"""

import logging
import math
from collections.abc import Callable
from typing import Final

from paceline.clock import seconds_since_boot
from paceline.errors import OUTAGES, LeadLost
from paceline.leadership.fleet import SHARED_LEASE_SECONDS, FleetHomes
from paceline.store import Store

log = logging.getLogger("paceline.engine")

RENEWALS_PER_LEASE: Final = 5
"""A server that restarts within most of a lease costs nobody the lead."""
DOUBT_SECONDS: Final = 1.0
"""How long before the end of its lease a leader stops trusting itself: more than a launch or a grant takes."""


class LeaderLease:
    """The lease of one owner. `lease` is its length in a store that is not shared."""

    def __init__(
        self,
        store: Store,
        owner: str,
        *,
        lease: float,
        fleet: FleetHomes | None = None,
        elapsed: Callable[[], float] = seconds_since_boot,
    ) -> None:
        self.owner = owner
        self.is_shared = store.is_shared
        self._store = store
        self.fleet = fleet
        """The homes of this machine, where machines share the store."""
        self._elapsed = elapsed
        self._length = SHARED_LEASE_SECONDS if self.is_shared else lease
        self._trusted_until = math.inf
        self._renew_at = -math.inf

    def take(self, now: float) -> bool:
        """Take the lead, or extend it. Return False while another engine leads. Raise `LeadLost` if it took over."""
        asked_at = self._elapsed()
        if not self._store.lead(self.owner, until=now + self._length, now=now):
            return False
        if self.fleet is not None:
            if self._renew_at == -math.inf:
                self.fleet.announce()
            else:  # by now it is stored that sessions of this machine have no end
                self.fleet.keep_sessions()
        if self.is_shared:
            self._trusted_until = asked_at + self._length - DOUBT_SECONDS
            self._renew_at = asked_at + self._length / RENEWALS_PER_LEASE
        return True

    def keep(self, now: float) -> None:
        """Extend the lease of a shared store when it is time."""
        if self.renewal_in() == 0.0 and not self.take(now):
            raise LeadLost("another engine has taken the lead")

    def renewal_in(self) -> float:
        """Return after how many seconds `keep` has something to do."""
        return max(0.0, self._renew_at - self._elapsed()) if self.is_shared else math.inf

    def resign(self) -> None:
        """Give up the lead, if it is still ours. From then on this process stores as others do.

        A store that does not answer is left alone: the lease runs out by itself.
        """
        try:
            self._store.resign(self.owner)
        except OUTAGES as error:
            log.info("the lead could not be given up; it ends with its lease: %s", error)

    @property
    def trusted_until(self) -> float:
        """Until when nobody else can lead, as `seconds_since_boot`."""
        return self._trusted_until

    @property
    def is_trusted(self) -> bool:
        """Whether nobody else can lead now."""
        return self._elapsed() < self._trusted_until

    def check(self) -> None:
        """Raise unless nobody else can lead now. A lease that may have run out is renewed first.

        Raise `LeadLost` if another engine leads, and `StoreError` if the store does not answer.
        """
        if not self.is_trusted and not self.take(now=0.0):  # a shared store goes by its own clock
            raise LeadLost("another engine has taken the lead")
