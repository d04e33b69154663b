"""The one order of all gates: the first that refuses decides, and it is the one that is explained.

Here: the table, and how gates are stored by their tags. A new gate needs one entry in `GATE_ORDER`.
"""

import msgspec

from paceline.core.gates.account_hold import AccountHold
from paceline.core.gates.deadline_cap import DeadlineCap
from paceline.core.gates.first_ramp import FirstRamp
from paceline.core.gates.gate import Gate
from paceline.core.gates.header_budget import HeaderBudget
from paceline.core.gates.landing_hold import LandingHold
from paceline.core.gates.learned_rate import LearnedRates
from paceline.core.gates.login_doubt import LoginDoubt
from paceline.core.gates.outage import Outage
from paceline.core.gates.pause import Pause
from paceline.core.gates.quota_gate import QuotaGate
from paceline.core.gates.rate_limit import RateLimit
from paceline.core.gates.slow_start import SlowStart
from paceline.core.gates.start_spacing import StartSpacing

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
