"""The log of requests: those that run and wait, and the last that ended. In memory, and never with a body.

Here: what is known of each request while it passes. Never here: a store, or anything that a request waits for.
"""

import secrets
from collections import deque
from collections.abc import Iterable, Iterator

from paceline.core.values.scopes import is_provider_scope
from paceline.views.gateway_calls import GatewayCall

KEPT_REQUESTS = 1000
"""Requests that ended and can still be looked up: minutes of a busy day, and less than a megabyte."""
LONGEST_MODEL_NAME = 100
"""Characters of a model's name that are kept. Clients choose it; the longest real ones have half of it."""
FIRST_ERROR = 400
_SECONDS = 60


class CallRecord(GatewayCall, gc=False, kw_only=True):
    """One request as it is known so far. The exchange that serves it fills it in. Times are on the gateway's clock.

    `account` is None until it is let in. One that never is leaves no trace.
    """

    is_billed: bool = True
    """Whether its account pays for tokens."""
    ticket: str | None = None
    """The ticket of the slot that it waits for."""
    queued_at: float = 0.0
    """When it began to wait for that slot."""
    seconds: float | None = None
    """None until it has ended."""
    is_estimated: bool = False


class MinuteCount:
    """How often something happened in the last minute."""

    __slots__ = ("_counts", "_second")

    def __init__(self) -> None:
        self._counts = [0] * _SECONDS
        self._second = 0

    def add(self, now: float) -> None:
        second = int(now)
        if second != self._second:
            self._move_to(second)
        self._counts[second % _SECONDS] += 1

    def total(self, now: float) -> int:
        self._move_to(int(now))
        return sum(self._counts)

    def _move_to(self, second: int) -> None:
        """Forget the seconds that have passed since. A clock that was set back starts again."""
        passed = second - self._second
        if not 0 <= passed < _SECONDS:
            self._counts = [0] * _SECONDS
        else:
            for each in range(self._second + 1, second + 1):
                self._counts[each % _SECONDS] = 0
        self._second = second


class RequestLog:
    """The requests of one gateway. Times are on its clock."""

    def __init__(self, kept: int = KEPT_REQUESTS) -> None:
        self._prefix = f"req-{secrets.token_hex(4)}-"
        self._count = 0
        self._live: dict[str, CallRecord] = {}
        self._ended: deque[CallRecord] = deque(maxlen=kept)
        self.arrivals = MinuteCount()
        self.refusals = MinuteCount()
        """Refusals by providers, and waits that ran out."""

    def new_record(self, now: float) -> CallRecord:
        """Return the record of a request that has just come. No other gateway gives the same id."""
        self._count = number = self._count + 1
        return CallRecord(id=f"{self._prefix}{number:x}", began_at=now)

    def admit(self, record: CallRecord, now: float) -> None:
        """List a request whose account is known now."""
        self._live[record.id] = record
        self.arrivals.add(now)

    def ended(self, record: CallRecord) -> None:
        """Move a request to those that have ended."""
        if self._live.pop(record.id, None) is not None:
            self._ended.append(record)

    def live(self) -> Iterable[CallRecord]:
        """Return the requests that run or wait, the oldest first."""
        return self._live.values()

    def recent(self) -> Iterator[CallRecord]:
        """Return those that ended, the last one first."""
        return reversed(self._ended)

    def ended_per_second(self, scope: str, now: float) -> float:
        """Return how many requests in the scope, or in those within it, were served in a second of the last minute."""
        inside, since = f"{scope}/", now - _SECONDS
        is_local = not is_provider_scope(scope)  # then calls of all providers pass it
        count, first = 0, now
        for each in reversed(self._ended):
            ended_at = each.began_at + (each.seconds or 0.0)
            if ended_at < since:
                break
            is_there = is_local or each.scope == scope or each.scope.startswith(inside)
            if is_there and each.status is not None and each.status < FIRST_ERROR:
                count, first = count + 1, ended_at
        return count / max(1.0, now - first)

    def find(self, request_id: str) -> CallRecord | None:
        """Return the request, as long as it is known."""
        record = self._live.get(request_id)
        return record or next((each for each in self._ended if each.id == request_id), None)


def kept_model(name: str | None) -> str | None:
    """Return the name of a model as far as it is kept."""
    return name if name is None or len(name) <= LONGEST_MODEL_NAME else name[:LONGEST_MODEL_NAME]
