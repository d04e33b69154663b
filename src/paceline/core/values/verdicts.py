"""Answers of the Governor: the verdict on a ticket, and effects for the caller to carry out."""

from collections.abc import Sequence, Sized
from typing import Literal, Protocol

import msgspec

from paceline.events import Event

Reason = Literal[
    "limit",
    "paused",
    "cooldown",
    "usage_gate",
    "window_closed",
    "platform_limit",
    "pacing",
    "reserve",
    "held",
    "unreachable",
    "machine",
    "queue_order",
]


class Granted(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A ticket that has a slot. `token` is its fencing token: a later grant always has a larger one."""

    ticket_id: str
    token: int
    granted_at: float
    waited: float
    expires_at: float | None


class Deferred(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A ticket that has no slot, and what keeps it out.

    `retry_at` is when that may change, as far as known. `position` is its position in its lane (1 = next), None
    where it does not wait.
    """

    ticket_id: str
    reason: Reason
    scope: str
    detail: str
    retry_at: float | None = None
    position: int | None = None


class Expired(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A lease that ran out: end the holder. Its places are free again at `reclaimed_at`, or when released."""

    ticket_id: str
    reclaimed_at: float


class PollUsage(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A poll to make: read the provider's own count and `report` the `Usage`, or an empty one on failure."""

    scope: str


Verdict = Granted | Deferred
Effect = Granted | Expired | PollUsage | Event


class Agenda(Protocol):
    """What a driver of the Governor has to do: effects to collect, and the time before which time changes nothing.

    Attributes instead of calls: a driver checks the first two after every request and release.
    """

    @property
    def effects(self) -> Sequence[Effect]: ...
    @property
    def next_due(self) -> float: ...
    @property
    def waiters(self) -> Sized: ...
