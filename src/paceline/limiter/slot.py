"""A slot in the caller's hands, and the `async with` around it."""

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING

import msgspec

from paceline.core import Deferred, Granted
from paceline.core.signals import Overloaded, QuotaClosed, RateLimited, Signal

if TYPE_CHECKING:
    from paceline.limiter.limiter import Limiter


class Slot(msgspec.Struct, eq=False):
    """A place in every scope of its path. Give it back with `release`, once or more often."""

    _limiter: "Limiter"
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
        """The lease ran out while it was held: the place is given on."""
        return not self.released and not self._limiter._governor.is_held(self.id)

    @property
    def is_canary(self) -> bool:
        """It is out to try a closed window: others wait for its first answer, so report `Succeeded` with it."""
        return self._limiter._governor.is_canary(self.id)

    def release(self) -> None:
        """Give the slot back. Without a report before, it went well."""
        if not self.released:
            self.released = True
            self._limiter._release(self._granted, self.scope, self.session)

    def abandon(self) -> None:
        """Give the slot back without a word on how it went: the call never reached the provider, say, or broke."""
        if not self.released:
            self.released = True
            self._limiter._release(self._granted, self.scope, self.session, learns=False)

    def renew(self) -> None:
        """Keep the lease for another `slot_timeout`."""
        self._limiter._renew(self)

    def report(self, signal: Signal) -> None:
        """Tell what the provider answered."""
        if isinstance(signal, Signal):
            signal = msgspec.structs.replace(signal, ticket=self.id)
        self._limiter.report(self.scope, signal)

    def rate_limited(self, retry_after: float | None = None) -> None:
        self.report(RateLimited(retry_after=retry_after))

    def overloaded(self, retry_after: float | None = None) -> None:
        self.report(Overloaded(retry_after=retry_after))

    def quota_closed(self, resets_at: float | None = None, window: str | None = None) -> None:
        self.report(QuotaClosed(resets_at=resets_at, window=window))

    def __repr__(self) -> str:
        return f"<Slot {self.id} in {self.scope}>"


OnQueued = Callable[[Deferred], object] | None


class SlotContext(msgspec.Struct, eq=False):
    """`async with limiter.slot(...)`: waits, hands out the slot, gives it back. Holds one slot at a time."""

    limiter: "Limiter"
    scope: str
    session: str | None
    priority: int
    since: float | None
    tokens: int | None
    timeout: float | None
    on_queued: OnQueued
    slot: Slot | None = None
    entered: bool = False

    def __aenter__(self) -> Coroutine[None, None, Slot]:
        return self.limiter._enter(
            self.scope, self.session, self.priority, self.since, self.tokens, self.timeout, self.on_queued, False, self
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        slot = self.slot
        self.entered = False
        if slot is not None and not slot.released:
            slot.released = True
            self.limiter._release(slot._granted, slot.scope, slot.session)
