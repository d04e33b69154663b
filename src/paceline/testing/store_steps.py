"""Steps that tests of stores are made of: add, claim, end a try, settle; with fixed times and names."""

from collections.abc import Iterable, Sequence

import msgspec

from paceline.core.unit_lifecycle import AttemptOutcome, Ending, Policy, transition_after
from paceline.store import Added, Campaign, OutcomeRecord, Store, Unit, UnitSpec

NOW = 1_000.0
LEASE_UNTIL = NOW + 60.0


def specs(*names: str) -> list[UnitSpec]:
    """Units of these names, each with a prompt of its own."""
    return [UnitSpec(id=name, prompt=f"do {name}") for name in names]


def add(store: Store, units: Iterable[UnitSpec] = (), campaign: str = "night", *, update: bool = False) -> Added:
    """Add units to a campaign of default settings."""
    return store.add_campaign(Campaign(name=campaign), units, update=update, now=NOW)


def claim(store: Store, limit: int = 1, *, campaign: str = "night", account: str = "max-1") -> list[Unit]:
    """Claim with attempts named after their number."""
    attempts = [f"attempt-{number}" for number in range(limit)]
    return store.claim_units(campaign, account, limit, attempt_ids=attempts, lease_until=LEASE_UNTIL, now=NOW)


def ended(
    unit: Unit, ending: Ending, *, resume_at: float | None = None, conversation_id: str | None = None
) -> OutcomeRecord:
    """How a try of the unit ended, as the core would say it."""
    outcome = AttemptOutcome(ending=ending, reason=f"it {ending}", resume_at=resume_at, exit_code=1)
    transition = transition_after(unit.counters, outcome, Policy(max_attempts=1), NOW)
    return OutcomeRecord(unit_id=unit.id, fence=unit.fence, transition=transition, conversation_id=conversation_id)


def record(store: Store, records: Sequence[OutcomeRecord]) -> list[bool]:
    """Settle ten seconds after the claim."""
    return store.record_outcomes(records, now=NOW + 10.0)


def names(units: Iterable[Unit]) -> list[str]:
    """The units' own names."""
    return [unit.spec.id for unit in units]


def stored(store: Store, unit_id: str) -> Unit:
    """The unit, which must be there."""
    unit = store.unit(unit_id)
    assert unit is not None
    return unit


def without_prompt(unit: Unit) -> Unit:
    """As lists show it."""
    return msgspec.structs.replace(unit, spec=msgspec.structs.replace(unit.spec, prompt=""))
