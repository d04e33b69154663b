"""The gates of a scope, and the one order of all: the first that refuses decides, and it is the one that is explained.

Here: the table, the gates of one scope, and how gates are stored by their tags. A new gate needs one entry in
`GATE_ORDER`.
"""

import msgspec

from paceline.core.gates.closures import AccountHold, LoginDoubt, Outage, Pause
from paceline.core.gates.gate import AnyGate, Gate, ScopeView
from paceline.core.gates.header_budget import HeaderBudget
from paceline.core.gates.quota_gate import QuotaGate
from paceline.core.gates.rates import LearnedRates, RateLimit
from paceline.core.gates.start_meters import DeadlineCap, FirstRamp, LandingHold, SlowStart, StartSpacing
from paceline.core.values.tickets import Ticket
from paceline.core.values.verdicts import Reason

GATE_ORDER: tuple[type[Gate], ...] = (
    AccountHold,
    LoginDoubt,
    Outage,
    Pause,
    SlowStart,
    FirstRamp,
    QuotaGate,
    LandingHold,
    DeadlineCap,
    StartSpacing,
    HeaderBudget,
    LearnedRates,
    RateLimit,
)


def in_order(gates: list[Gate]) -> tuple[Gate, ...]:
    """Return the gates in the order in which they decide."""
    return tuple(sorted(gates, key=lambda gate: GATE_ORDER.index(type(gate))))


def encode_gate(gate: Gate) -> object:
    """Return the gate as plain values, which share nothing with it."""
    return msgspec.to_builtins(gate)


def decode_gate(tag: str, raw: object) -> Gate | None:
    """Return the gate stored under the tag; None for a tag of a newer version."""
    kind = next((kind for kind in GATE_ORDER if tag == kind.TAG), None)
    return None if kind is None else msgspec.convert(raw, kind)


class GateSet:
    """Mutable; owned by one scope. `in_order` is replaced, never changed, so it may be iterated while gates change.
    `rate_limit` and `header_budget` are those of them that are asked for at each call.

    `unknown` keeps stored gates of a newer version as they are, so that a restart under this one loses nothing.
    """

    __slots__ = ("header_budget", "in_order", "rate_limit", "unknown")

    def __init__(self) -> None:
        self.in_order: tuple[Gate, ...] = ()
        self.rate_limit: RateLimit | None = None
        self.header_budget: HeaderBudget | None = None
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
        self._replace(in_order([*others, gate]))

    def drop(self, kind: type[Gate]) -> None:
        """Remove the gate of that kind, if there is one."""
        self._replace(tuple(gate for gate in self.in_order if type(gate) is not kind))

    def drop_idle(self) -> bool:
        """Remove the idle gates. Returns whether there was one."""
        kept = [gate for gate in self.in_order if not gate.is_idle]
        if len(kept) == len(self.in_order):
            return False
        self._replace(tuple(kept))
        return True

    def _replace(self, gates: tuple[Gate, ...]) -> None:
        self.in_order = gates
        self.rate_limit, self.header_budget = self.get(RateLimit), self.get(HeaderBudget)

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
