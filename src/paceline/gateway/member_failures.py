"""Accounts of pools whose calls fail: since when, how often, why, and until when they are tried last.

An account is here from its first failed call to the next one that it serves. Never here: who is tried instead.
"""

import logging
from typing import Literal

import msgspec

log = logging.getLogger("paceline.gateway")

FIRST_OUTAGE_SECONDS, LONGEST_OUTAGE_SECONDS = 5.0, 300.0
"""How long an account that could not be reached is tried last, doubling. As the Governor waits after an outage."""

REPEATED_SECONDS = 30.0
"""How long a provider must refuse an account, without serving it, to be worth a line. A single 429 is not."""


class Failing(msgspec.Struct):
    """An account that has served nothing since `since`. Times are Unix times."""

    kind: Literal["unreachable", "refused"]
    detail: str
    since: float
    last_at: float
    calls: int = 0
    tried_last_until: float = 0.0
    outage_seconds: float = 0.0

    @property
    def is_worth_showing(self) -> bool:
        return self.kind == "unreachable" or self.last_at - self.since >= REPEATED_SECONDS


class MemberFailures:
    """The failing accounts of one gateway, by name."""

    def __init__(self) -> None:
        self.failing: dict[str, Failing] = {}

    def note_unreachable(self, name: str, why: str, now: float) -> None:
        """Note a call that found no connection. The account is tried last for a while, each time for longer."""
        found = self._note("unreachable", name, why, now)
        if found.tried_last_until <= now:  # calls that failed together are one outage
            seconds = min(max(FIRST_OUTAGE_SECONDS, 2 * found.outage_seconds), LONGEST_OUTAGE_SECONDS)
            found.tried_last_until, found.outage_seconds = now + seconds, seconds
            log.warning("%s cannot be reached (%s): its pools try it last for %g s", name, why, seconds)

    def note_refused(self, name: str, status: int, now: float) -> None:
        """Note a call that the provider refused in a way that another key may not be."""
        found = self._note("refused", name, f"status {status}", now)
        found.tried_last_until = found.outage_seconds = 0.0

    def note_served(self, name: str) -> None:
        """Forget the failures of an account that has answered a call."""
        self.failing.pop(name, None)

    def is_tried_last(self, name: str, now: float) -> bool:
        found = self.failing.get(name)
        return found is not None and now < found.tried_last_until

    def _note(self, kind: Literal["unreachable", "refused"], name: str, detail: str, now: float) -> Failing:
        found = self.failing.get(name)
        if found is None:
            found = self.failing[name] = Failing(kind, detail, since=now, last_at=now)
        found.kind, found.detail, found.last_at = kind, detail, now
        found.calls += 1
        return found
