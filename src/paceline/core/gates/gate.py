"""What a gate is: a rule of a scope that can refuse a ticket whether or not there is room.

Here: the hooks that every gate shares, each with a default that does nothing. A new gate is one class in this
package and one entry in `order.py`; nothing else names it to decide, explain, wake, shift or store.
Never here: room and the usage poll. They depend on who asks, and come after all gates.
"""

import math
from collections.abc import Sequence
from typing import ClassVar, Protocol, TypeVar

import msgspec

from paceline.core.limits import AdaptiveLimit, PlatformCap
from paceline.core.state.usage_meter import CallLength, TokenEstimate, Use
from paceline.core.values.fields import RelativeTimes
from paceline.core.values.tickets import Reason, Ticket

AnyGate = TypeVar("AnyGate", bound="Gate")


class ScopeView(Protocol):
    """What a gate may read of its scope."""

    @property
    def name(self) -> str: ...
    @property
    def live(self) -> int: ...
    @property
    def reserve(self) -> float: ...
    @property
    def waiting(self) -> int: ...
    @property
    def spread_waiters(self) -> int: ...
    @property
    def is_full(self) -> bool: ...
    @property
    def cap(self) -> int: ...
    @property
    def platform(self) -> PlatformCap | None: ...
    @property
    def tokens(self) -> TokenEstimate: ...
    @property
    def calls(self) -> CallLength: ...
    @property
    def adaptive(self) -> AdaptiveLimit | None: ...

    def use(self, now: float) -> Use:
        """Return what the slots of the scope have used up to now."""


NOW, NEVER = -math.inf, math.inf
"""When a gate is active that may refuse at once, and one that needs no notice of grants."""


class Explanation(msgspec.Struct, frozen=True):
    """Why a ticket is refused, in words, and when that may change as far as known."""

    detail: str
    retry_at: float | None = None


class GateEvent(msgspec.Struct, frozen=True):
    """What a hook changed: an event to emit, whether waiters may enter, and a gate that follows."""

    name: str
    fields: dict[str, object] = {}
    lets_in: bool = False
    successor: "Gate | None" = None


class Gate(RelativeTimes):
    """One gate of one scope, named by `TAG` in snapshots. A present gate slows its scope only while it is active."""

    TAG: ClassVar[str] = ""
    IS_STORED: ClassVar[bool] = True

    # -- deciding and explaining -------------------------------------------------------------

    def refuses(self, ticket: Ticket, scope: ScopeView, now: float) -> Reason | None:
        """Return why the ticket may not enter now, or None if it may."""
        return None

    def explain(self, ticket: Ticket, scope: ScopeView, now: float) -> Explanation:
        """Explain the refusal. Called only on the gate that refused."""
        return Explanation(f"{scope.name} is closed by its {self.TAG}")

    def refuses_only_this(self, ticket: Ticket, scope: ScopeView, now: float) -> bool:
        """Return whether the gate may admit another ticket, such as a smaller one, although it refuses this one."""
        return False

    def active_from(self, scope: ScopeView) -> float:
        """Return from when the gate is active: then it must be notified of grants.

        `NOW` means that it may also refuse tickets, `spread` ones aside, before its next hook is called. While no
        gate is active now, requests do not consult gates at all.
        """
        return NOW

    def is_idle(self, now: float) -> bool:
        """Return whether the gate has nothing to hold back and nothing to remember: a new scope would be the same."""
        return False

    # -- notifications -----------------------------------------------------------------------

    def on_grant(self, ticket: Ticket, scope: ScopeView, now: float, *, takes_place: bool) -> Sequence[GateEvent]:
        """Count a ticket that has entered. A run that shares its session's place takes none."""
        return ()

    def awaits_success(self, scope: ScopeView) -> bool:
        """Return whether a success may change the gate, or when it next opens."""
        return False

    def on_success(self, ticket: Ticket | None, granted_at: float, scope: ScopeView, now: float) -> Sequence[GateEvent]:
        """Learn that a call, or a whole slot, went well."""
        return ()

    def on_tokens(self, ticket: Ticket | None, granted_at: float, tokens: int, scope: ScopeView, now: float) -> bool:
        """Learn what a run used, before the scope's estimate does. Returns whether a waiter may now enter."""
        return False

    # -- time --------------------------------------------------------------------------------

    def next_wake(self, scope: ScopeView, now: float, *, has_waiters: bool) -> float | None:
        """Return the next time at which the gate changes, or admits a waiter, by time alone."""
        return None

    def on_time(self, scope: ScopeView, now: float) -> Sequence[GateEvent]:
        """Carry out what is due."""
        return ()


def earliest(now: float, *times: float | None) -> float | None:
    """Return the earliest of the times that are still ahead."""
    return min((at for at in times if at is not None and at > now), default=None)
