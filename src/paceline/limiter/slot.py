"""A slot in the caller's hands, and the request that it answers."""

from collections.abc import Callable
from typing import Protocol, TypedDict

import msgspec

from paceline.core import Deferred, Granted
from paceline.core.signals import Overloaded, QuotaClosed, RateLimited, Signal

OnQueued = Callable[[Deferred], object] | None


class QueueOptions(TypedDict, total=False):
    """How a caller queues. `since` keeps the rank of an earlier wait; slots of a `session` end with it."""

    session: str | None
    priority: int
    since: float | None


class RequestOptions(QueueOptions, total=False):
    """The same for a slot of this program. Budgets and rates of tokens count the `tokens` that a call will use."""

    tokens: int | None


class WaitOptions(RequestOptions, total=False):
    """The same for a caller that waits."""

    timeout: float | None
    on_queued: OnQueued


class SlotGroup(msgspec.Struct, frozen=True):
    """Whom a caller belongs to: a group that shares capacity by its weight. Its scope comes besides the path."""

    scope: str
    weight: float


class AdmissionRequest(msgspec.Struct, frozen=True):
    """What a caller asks for.

    `leased=False`: the limiter itself releases the slot at the end of a block, so it needs no renewals.
    """

    scope: str
    session: str | None = None
    priority: int = 0
    since: float | None = None
    tokens: int | None = None
    timeout: float | None = None
    on_queued: OnQueued = None
    leased: bool = True
    group: SlotGroup | None = None


class SlotIssuer(Protocol):
    """What a slot needs of the limiter that granted it."""

    def leave(self, slot: "Slot", *, learns: bool) -> None: ...
    def renew(self, slot: "Slot") -> None: ...
    def report(self, slot: "Slot", signal: Signal) -> None: ...
    def is_held(self, slot: "Slot") -> bool: ...
    def is_canary(self, slot: "Slot") -> bool: ...


class Slot(msgspec.Struct, eq=False, gc=False):
    """One place in every scope of its path. `release` gives them back; further calls do nothing."""

    _issuer: SlotIssuer
    _granted: Granted
    scope: str
    session: str | None
    released: bool = False

    @property
    def id(self) -> str:
        return self._granted.ticket_id

    @property
    def token(self) -> int:
        """The fencing token: a later grant always has a larger one."""
        return self._granted.token

    @property
    def granted_at(self) -> float:
        return self._granted.granted_at

    @property
    def waited(self) -> float:
        return self._granted.waited

    @property
    def lost(self) -> bool:
        """Whether the lease ran out before the release, so that other tickets get its places."""
        return not self.released and not self._issuer.is_held(self)

    @property
    def is_canary(self) -> bool:
        """Whether it probes a closed window. Others wait for its first answer, so report `Succeeded` with it."""
        return self._issuer.is_canary(self)

    def release(self) -> None:
        """Give the slot back. Without a report before, it counts as a success."""
        if not self.released:
            self.released = True
            self._issuer.leave(self, learns=True)

    def abandon(self) -> None:
        """Give the slot back and learn nothing from it: the call never reached the provider, or broke."""
        if not self.released:
            self.released = True
            self._issuer.leave(self, learns=False)

    def renew(self) -> None:
        """Keep the lease for another `slot_timeout`."""
        self._issuer.renew(self)

    def report(self, signal: Signal) -> None:
        """Report what the provider answered."""
        self._issuer.report(self, signal)

    def rate_limited(self, retry_after: float | None = None) -> None:
        self.report(RateLimited(retry_after=retry_after))

    def overloaded(self, retry_after: float | None = None) -> None:
        self.report(Overloaded(retry_after=retry_after))

    def quota_closed(self, resets_at: float | None = None, window: str | None = None) -> None:
        self.report(QuotaClosed(resets_at=resets_at, window=window))

    def __repr__(self) -> str:
        return f"<Slot {self.id} in {self.scope}>"
