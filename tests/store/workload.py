"""A fixed night of work as a list of verbs, in a process that can be killed at any moment.

    python -m tests.store.workload PATH BATCH   runs it for ever: a line when open, one for each verb that has returned
    python -m tests.store.workload PATH         adds one unit, then dies in the middle of adding thousands

After `kill -9` the file must look as a store in memory does after just as many verbs, or one more.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from itertools import count

from paceline.core.unit_lifecycle import AttemptOutcome, Ending, Policy, transition_after
from paceline.events import Event
from paceline.store import (
    Campaign,
    Lease,
    OutcomeRecord,
    SpendRow,
    SqliteStore,
    Store,
    StoredSlot,
    UnitSpec,
)

ENDINGS: tuple[Ending, ...] = ("succeeded", "failed", "parked", "lost", "refused")

Verb = Callable[[Store], object]


def verbs(batch: int) -> Iterator[Verb]:
    """The same each time. Each looks up what it needs, so that it can go on where another process was killed."""
    for night in count():
        yield from _one_night(night, batch)


def _one_night(night: int, batch: int) -> Iterator[Verb]:
    yield _adding(night, batch)
    yield lambda store: store.append_events([Event("engine.leading", float(night))] * 20)
    yield _claiming(night, batch)
    yield lambda store: store.save_state("governor", b"%d" % night * 5_000)
    yield _leasing(night, batch)
    yield lambda store: store.save_slots([], [f"{night}-0", f"{night}-1"])
    yield _settling(night)
    yield lambda store: store.add_spend([SpendRow(day="d", key="k", account="a", model=str(night % 5), requests=1)] * 2)
    yield lambda store: store.wake_units(now=night + 45.0, limit=batch // 3)
    if night % 3 == 2:
        yield lambda store: store.retry_units("one")
        yield lambda store: store.cancel_units("two", now=float(night))
        yield lambda store: store.delete_campaign("two")


def everything(store: Store) -> tuple[object, ...]:
    """All that is stored, as one value."""
    units = [unit.id for unit in store.units(limit=100_000).units]
    return (
        store.campaigns(),
        store.counts(),
        store.claimable(),
        store.next_resume_at(),
        [store.unit(identifier) for identifier in units],
        store.events(limit=100_000),
        store.slots(),
        store.load_state("governor"),
        store.spend(),
    )


def states_after(batch: int, *returned: int) -> list[tuple[object, ...]]:
    """How a store looks after so many verbs each."""
    store = SqliteStore.in_memory()
    states = {0: everything(store)}
    for number, verb in zip(range(1, max(returned) + 1), verbs(batch), strict=False):
        verb(store)
        if number in returned:
            states[number] = everything(store)
    return [states[number] for number in returned]


def _campaign(night: int) -> str:
    return ("one", "two")[night % 2]


def _adding(night: int, batch: int) -> Verb:
    specs = [UnitSpec(id=f"{night}-{number}", prompt="do it\n" * (number % 50)) for number in range(batch)]
    return lambda store: store.add_campaign(Campaign(name=_campaign(night)), specs, update=False, now=float(night))


def _claiming(night: int, batch: int) -> Verb:
    attempts = [f"{night}-{number}" for number in range(batch)]
    return lambda store: store.claim_units(
        _campaign(night), "max-1", batch, attempt_ids=attempts, lease_until=night + 60.0, now=float(night)
    )


def _leasing(night: int, batch: int) -> Verb:
    """Last night's slots go as this night's come."""
    kept = [
        StoredSlot(
            id=f"{night}-{number}",
            scopes=("runs", "anthropic"),
            granted_at=float(night),
            lease=Lease(token=night * batch + number + 1, ttl=60.0, expires_at=night + 60.0),
        )
        for number in range(batch)
    ]
    dropped = [f"{night - 1}-{number}" for number in range(batch)]
    return lambda store: store.save_slots(kept, dropped)


def _settling(night: int) -> Verb:
    def settle(store: Store) -> None:
        settled = [
            OutcomeRecord(
                unit_id=unit.id,
                fence=unit.fence,
                transition=transition_after(
                    unit.counters,
                    AttemptOutcome(ending=ENDINGS[unit.position % 5], reason="so it went", resume_at=night + 30.0),
                    Policy(),
                    float(night),
                ),
                conversation_id="talk" if unit.position % 2 else None,
            )
            for unit in store.running_units()
        ]
        store.record_outcomes(settled, now=float(night))

    return settle


def _run_for_ever(store: Store, batch: int) -> None:
    print("open", flush=True)
    for verb in verbs(batch):
        verb(store)
        print("returned", flush=True)


def _die_inside_a_verb(store: Store) -> None:
    store.add_campaign(Campaign(name="night"), [UnitSpec(id="a")], update=False, now=1.0)
    store.add_campaign(Campaign(name="night", priority=9), _deadly_plan(), update=False, now=2.0)


def _deadly_plan() -> Iterator[UnitSpec]:
    for number in range(5_000):
        yield UnitSpec(id=f"u{number}", prompt="x" * 1_000)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    match sys.argv[1:]:
        case [path, batch]:
            _run_for_ever(SqliteStore(path), int(batch))
        case [path]:
            _die_inside_a_verb(SqliteStore(path))
