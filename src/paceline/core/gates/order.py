"""The gates of a scope, and the one order of all: the first that refuses decides, and it is the one that is explained.

Here: the table, the gates of one scope, and how gates are stored by their tags. A new gate needs one entry in
`GATE_ORDER`.
"""

from dataclasses import dataclass, field

import msgspec

from paceline.core.gates.closures import CLOSURES, Closure, Pause
from paceline.core.gates.gate import AnyGate, Gate, ScopeView
from paceline.core.gates.header_budget import HeaderBudget
from paceline.core.gates.quota_window import QuotaGate
from paceline.core.gates.rates import LearnedRates, RateLimit
from paceline.core.gates.start_meters import FirstRamp, SlowStart, StartCap, StartSpacing
from paceline.core.values.tickets import Reason, Ticket

GATE_ORDER: tuple[type[Gate], ...] = (
    Closure,
    Pause,
    SlowStart,
    FirstRamp,
    QuotaGate,
    StartCap,
    StartSpacing,
    HeaderBudget,
    LearnedRates,
    RateLimit,
)

STAYING = (Closure, FirstRamp, QuotaGate, RateLimit)
"""Kinds that stay in their scope while they are idle: settings make them, or they know what came before."""


def _position(gate: Gate) -> tuple[int, int]:
    of_closure = [*CLOSURES].index(gate.reason) if isinstance(gate, Closure) else 0
    return GATE_ORDER.index(type(gate)), of_closure


def tag_of(gate: Gate) -> str:
    """Return the name of the gate in snapshots. A scope has one gate of each name."""
    return gate.reason if isinstance(gate, Closure) else gate.TAG


def decode_gate(tag: str, raw: object) -> Gate | None:
    """Return the gate stored under the tag; None for a tag of a newer version."""
    if tag in CLOSURES:
        closure = msgspec.convert(raw, Closure)
        closure.reason = tag
        return closure
    kind = next((kind for kind in GATE_ORDER if tag == kind.TAG), None)
    return None if kind is None else msgspec.convert(raw, kind)


@dataclass(slots=True, eq=False)
class GateSet:
    """Mutable; owned by one scope. `in_order` is replaced, never changed, so it may be iterated while gates change.
    `rate_limit` and `header_budget` are those of them that are asked for at each call.

    `unknown` keeps stored gates of a newer version as they are, so that a restart under this one loses nothing.
    """

    in_order: tuple[Gate, ...] = ()
    rate_limit: RateLimit | None = None
    header_budget: HeaderBudget | None = None
    unknown: dict[str, object] = field(default_factory=dict)

    def get(self, kind: type[AnyGate]) -> AnyGate | None:
        """Return the gate of that kind, if the scope has one. Ask for closures by their reason."""
        for gate in self.in_order:
            if type(gate) is kind:
                return gate
        return None

    def ensure(self, kind: type[AnyGate]) -> AnyGate:
        """Return the gate of that kind, made on first use."""
        gate = self.get(kind)
        if gate is None:
            gate = kind()
            self.put(gate)
        return gate

    def closure(self, reason: str) -> Closure | None:
        return next((gate for gate in self.closures if gate.reason == reason), None)

    @property
    def closures(self) -> list[Closure]:
        return [gate for gate in self.in_order if isinstance(gate, Closure)]

    @property
    def probed(self) -> list[Closure | QuotaGate]:
        """The gates whose reason to be closed is tested by canaries."""
        return [gate for gate in self.in_order if isinstance(gate, Closure | QuotaGate)]

    def put(self, gate: Gate) -> None:
        """Add the gate in place of any other of its name."""
        others = [other for other in self.in_order if tag_of(other) != tag_of(gate)]
        self._replace(tuple(sorted([*others, gate], key=_position)))

    def drop(self, *dropped: type[Gate] | str) -> None:
        """Remove the gates of these kinds, and the closures for these reasons, if there are any."""
        kept = [gate for gate in self.in_order if type(gate) not in dropped and tag_of(gate) not in dropped]
        self._replace(tuple(kept))

    def drop_idle(self, now: float) -> None:
        """Remove the idle gates that do not stay."""
        kept = [gate for gate in self.in_order if isinstance(gate, STAYING) or not gate.is_idle(now)]
        if len(kept) < len(self.in_order):
            self._replace(tuple(kept))

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
