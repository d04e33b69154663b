"""Steps of store tests: add, claim, end an attempt, record its outcome; with fixed times and names."""

from collections.abc import Iterable, Sequence

import msgspec

from paceline.core.unit_lifecycle import AttemptOutcome, Ending, Policy, transition_after
from paceline.store import Added, Campaign, OutcomeRecord, Store, Unit, UnitSpec

NOW = 1_000.0
LEASE_UNTIL = NOW + 60.0


def specs(*names: str) -> list[UnitSpec]:
    """Return units with these names, each with a prompt of its own."""
    return [UnitSpec(id=name, prompt=f"do {name}") for name in names]


def add(store: Store, units: Iterable[UnitSpec] = (), campaign: str = "night", *, update: bool = False) -> Added:
    """Add units to a campaign with default settings."""
    return store.add_campaign(Campaign(name=campaign), units, update=update, now=NOW)


def claim(store: Store, limit: int = 1, *, campaign: str = "night", account: str = "max-1") -> list[Unit]:
    """Claim units, with attempt ids that are their numbers."""
    attempts = [f"attempt-{number}" for number in range(limit)]
    return store.claim_units(campaign, account, limit, attempt_ids=attempts, lease_until=LEASE_UNTIL, now=NOW)


def ended(
    unit: Unit, ending: Ending, *, resume_at: float | None = None, conversation_id: str | None = None
) -> OutcomeRecord:
    """Return how an attempt of the unit ended, as the core would record it."""
    outcome = AttemptOutcome(ending=ending, reason=f"it {ending}", resume_at=resume_at, exit_code=1)
    transition = transition_after(unit.counters, outcome, Policy(max_attempts=1), NOW)
    return OutcomeRecord(unit_id=unit.id, fence=unit.fence, transition=transition, conversation_id=conversation_id)


def record(store: Store, records: Sequence[OutcomeRecord]) -> list[bool]:
    """Record outcomes ten seconds after the claim."""
    return store.record_outcomes(records, now=NOW + 10.0)


def names(units: Iterable[Unit]) -> list[str]:
    """Return the names of the units."""
    return [unit.spec.id for unit in units]


def stored(store: Store, unit_id: str) -> Unit:
    """Return a unit that must exist."""
    unit = store.unit(unit_id)
    assert unit is not None
    return unit


def without_prompt(unit: Unit) -> Unit:
    """Return the unit as lists show it."""
    return msgspec.structs.replace(unit, spec=msgspec.structs.replace(unit.spec, prompt=""))
