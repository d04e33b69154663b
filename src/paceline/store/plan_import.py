"""The import of a plan into tables: which units are new, which changed, and what a campaign keeps.

Here: what the import decides, and in how many steps. Never here: a statement.
"""

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec

from paceline.errors import IllegalStep
from paceline.store.interface import Added, Campaign, UnitSpec
from paceline.store.rules import unit_id

SPECS_AT_ONCE: Final = 250
"""Units in one step: about 5 ms of work, and fewer than the parameters that every SQLite build accepts."""
IS_REPAIRED: Final = "state IN ('quarantined', 'unverified')"
"""The states in which a changed unit is tried again: the work failed, and the plan was corrected."""


class StoredSpec(msgspec.Struct, frozen=True):
    """A unit as an earlier plan described it."""

    key: int
    spec: UnitSpec


class SpecComparison:
    """The units of a plan beside those that an earlier plan described."""

    def __init__(self) -> None:
        self._unchanged = 0
        self._changes: list[tuple[StoredSpec, UnitSpec]] = []

    def take(self, chunk: Iterable[UnitSpec], stored: dict[str, StoredSpec]) -> list[UnitSpec]:
        """Compare some units with the stored ones of these names. Return those that are new."""
        added = []
        for spec in chunk:
            known = stored.get(spec.id)
            if known is None:
                added.append(spec)
            elif known.spec == spec:
                self._unchanged += 1
            else:
                self._changes.append((known, spec))
        return added

    def apply(self, campaign: str, added: int, replace: Callable[[StoredSpec, UnitSpec], bool]) -> Added:
        """Offer every change to `replace`, which returns whether it made it. Return what the import did."""
        changed: list[str] = []
        updated: list[str] = []
        for stored, spec in self._changes:
            (updated if replace(stored, spec) else changed).append(unit_id(campaign, spec.id))
        return Added(added=added, unchanged=self._unchanged, changed=tuple(changed), updated=tuple(updated))


def stored_specs(rows: Iterable[tuple[int, str, str, str, str | None]]) -> dict[str, StoredSpec]:
    """Return the stored units by name, from rows of key, name, prompt, cwd and output."""
    return {
        name: StoredSpec(key, UnitSpec(id=name, prompt=prompt, cwd=cwd, output=output))
        for key, name, prompt, cwd, output in rows
    }


def kept_campaign(planned: Campaign, before: Campaign | None, stored: Campaign) -> Campaign:
    """Return the campaign of the plan with what a plan does not decide: its state and when it was created.

    `before` is the campaign as it was when the import began, `stored` as it is at its end.
    """
    if before is not None and stored.state == "cancelled" != before.state:
        raise IllegalStep(f"{planned.name} was cancelled while units were added to it")
    return msgspec.structs.replace(
        planned, state=stored.state, pause_reason=stored.pause_reason, created_at=stored.created_at
    )


def spec_chunks(specs: Iterable[UnitSpec]) -> Iterator[list[UnitSpec]]:
    """Yield the units in the portions that one step takes."""
    remaining = iter(specs)
    while chunk := list(islice(remaining, SPECS_AT_ONCE)):
        yield chunk


def run_to_end(steps: Generator[None, None, Added], *, pause_seconds: float = 0.0) -> Added:
    """Run all steps of an import, with a pause after each. Return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            added: Added = end.value
            return added
        if pause_seconds:
            time.sleep(pause_seconds)
