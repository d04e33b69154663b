"""The gates of one scope, at most one of each kind, in the order in which they decide."""

from paceline.core.gates.gate import AnyGate, Gate, ScopeView
from paceline.core.gates.order import in_order
from paceline.core.values.tickets import LaneKey, Ticket
from paceline.core.values.verdicts import Reason


class GateSet:
    """Mutable; owned by one scope. `in_order` is replaced, never changed, so it may be iterated while gates change.

    `unknown` keeps stored gates of a newer version as they are, so that a restart under this one loses nothing.
    """

    __slots__ = ("in_order", "unknown")

    def __init__(self) -> None:
        self.in_order: tuple[Gate, ...] = ()
        self.unknown: dict[str, object] = {}

    def get(self, kind: type[AnyGate]) -> AnyGate | None:
        """Return the gate of that kind, if the scope has one."""
        for gate in self.in_order:
            if type(gate) is kind:
                return gate
        return None

    def put(self, gate: Gate) -> None:
        """Add the gate in place of any other of its kind."""
        others = [other for other in self.in_order if type(other) is not type(gate)]
        self.in_order = in_order([*others, gate])

    def drop(self, kind: type[Gate]) -> None:
        """Remove the gate of that kind, if there is one."""
        self.in_order = tuple(gate for gate in self.in_order if type(gate) is not kind)

    def drop_idle(self) -> bool:
        """Remove the idle gates. Returns whether there was one."""
        kept = [gate for gate in self.in_order if not gate.is_idle]
        if len(kept) == len(self.in_order):
            return False
        self.in_order = tuple(kept)
        return True

    def refusal(self, ticket: Ticket, scope: ScopeView, now: float) -> tuple[Gate, Reason] | None:
        """Return the first gate that refuses the ticket, and why. Gates refuse whether or not there is room."""
        for gate in self.in_order:
            if (reason := gate.refuses(ticket, scope, now)) is not None:
                return gate, reason
        return None

    def refuses_only_this(self, ticket: Ticket, scope: ScopeView, now: float) -> bool:
        """Return whether another ticket may enter although the gates refuse this one."""
        if any(gate.refuses_only_this(ticket, scope, now) for gate in self.in_order):
            return True
        if not ticket.spread:
            return False
        refusal = self.refusal(ticket, scope, now)
        return refusal is not None and refusal[1] == "pacing"  # it may be held back by its own plan only

    def keep_tokens(self, ticket: Ticket, scope: ScopeView, now: float) -> None:
        """Keep tokens for the head of a lane, so that no later ticket takes them."""
        for gate in self.in_order:
            gate.keep_tokens(ticket, scope, now)

    def free_tokens(self, ticket: Ticket) -> None:
        """Stop keeping tokens for the ticket."""
        for gate in self.in_order:
            gate.free_tokens(ticket)

    def kept_lanes(self) -> set[LaneKey]:
        """Return the lanes for which tokens are kept."""
        return {lane for gate in self.in_order if (lane := gate.kept_lane) is not None}
