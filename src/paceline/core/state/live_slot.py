"""A granted ticket while it lives: which places it holds, its lease, and its runs if it is a session."""

from typing import TYPE_CHECKING

import msgspec

from paceline.core.values.tickets import Ticket

if TYPE_CHECKING:
    from paceline.core.state.queue import Lane


class LiveSlot(msgspec.Struct, eq=False, gc=False):
    """`heard` is the sequence number of its grant or last success: what came after an incident is news."""

    ticket: Ticket
    lane: "Lane"
    granted_at: float
    token: int
    expires_at: float | None
    heard: int
    reported: bool = False
    reclaim_at: float | None = None
    released: bool = False
    runs: dict[str, int] | None = None
    run_lanes: "dict[Lane, None] | None" = None

    @property
    def has_succeeded(self) -> bool:
        """Whether something went well since its grant."""
        return self.heard > self.token

    def covers(self, scope: str) -> bool:
        """Whether a run of this session needs no place of its own in the scope: the session's is free."""
        return not self.released and scope in self.lane.names and not (self.runs and self.runs.get(scope))

    def on_run_started(self, scope: str) -> None:
        if self.runs is None:
            self.runs = {}
        self.runs[scope] = self.runs.get(scope, 0) + 1

    def on_run_ended(self, scope: str) -> int:
        """How many of its runs are left in the scope."""
        assert self.runs is not None
        self.runs[scope] -= 1
        return self.runs[scope]
