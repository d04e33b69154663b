"""How long conversations wait for a host that cannot take them, before they are given up.

Here: since when a host is gone, and when that has lasted too long. Never here: the store (`relocation.py`).
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from paceline.agents.account import split_login
from paceline.core import Deferred
from paceline.engine.rough_spans import rough_span
from paceline.hosts.host_state import HostState
from paceline.store import Campaign


class Overdue(NamedTuple):
    """Conversations of a campaign on a login that have waited for longer than the campaign's patience."""

    campaign: str
    login: str
    reason: str


class HostPatience:
    """Since when each host is gone, and since when it cannot take conversations of a campaign that are on it.

    A new leader counts from its own start, unless it knows since when the host is silent.
    """

    def __init__(self) -> None:
        self._gone_since: dict[str, float] = {}
        self._refused_since: dict[tuple[str, str], float] = {}
        self._seen: set[tuple[str, str]] = set()
        self.overdue: list[Overdue] = []

    def begin(self, hosts: Iterable[HostState], now: float) -> None:
        """Begin a pass: see which hosts are there."""
        gone: dict[str, float] = {}
        for state in hosts:
            if state.presence != "joined":
                heard_at = state.heard_at if state.presence in ("silent", "lost") else None
                since = self._gone_since.get(state.name, now if heard_at is None else heard_at)
                gone[state.name] = min(since, now)
        self._gone_since = gone
        self._seen.clear()
        self.overdue.clear()

    def explain(self, campaign: Campaign, login: str, refusal: Deferred, now: float, *, has_others: bool) -> Deferred:
        """Return why conversations on the login wait, and until when. Note them once that has lasted too long.

        `has_others`: whether the campaign can run anywhere else. If not, giving them up would help nobody.
        """
        _, host = split_login(login)
        key = campaign.name, host
        self._seen.add(key)
        since = min(self._gone_since.get(host, now), self._refused_since.setdefault(key, now), now)
        until = since + campaign.patience
        if not has_others:
            detail = f"their conversation is there, and no other host can take them: {refusal.detail}"
            return Deferred("", refusal.reason, refusal.scope, detail, refusal.retry_at)
        if now >= until:
            reason = f"its conversation was given up after {rough_span(now - since)}: {refusal.detail}"
            self.overdue.append(Overdue(campaign.name, login, reason))
        when = f"{datetime.fromtimestamp(until, UTC):%H:%M} UTC"
        detail = f"their conversation is there until {when}, when they begin again elsewhere: {refusal.detail}"
        return Deferred("", refusal.reason, refusal.scope, detail, until)

    def end(self) -> None:
        """End a pass: hosts that no conversation waits for are counted again when one does."""
        self._refused_since = {key: since for key, since in self._refused_since.items() if key in self._seen}
