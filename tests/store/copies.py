"""A store with something of everything, and a copy of a store in a process that kills itself in the middle.

python -m tests.store.copies SRC DST TABLE   dies as TABLE is compared, when everything was written
"""

import os
import signal
import sys

from tests.store.workload import everything, verbs

from paceline.core.unit_lifecycle import AttemptOutcome, Ending, Policy, UnitState, transition_after
from paceline.core.values.tokens import Tokens
from paceline.events import Event
from paceline.store import (
    Campaign,
    CheckRound,
    ClientKey,
    Cost,
    KeyBudget,
    Lease,
    OutcomeRecord,
    SpendRow,
    Store,
    StoredSlot,
    Unit,
    UnitResult,
    UnitSpec,
)
from paceline.store.postgres_copy import PostgresCopySide
from paceline.store.sqlite_copy import SqliteCopySide
from paceline.store.table_copy import CopySide, copy_store

ODD_TEXT = "a NUL \x00, its escape \ue000 and \ue0000, ünïcödé 😀, \\N, \t, '\" and\r\n"
STATES: tuple[UnitState, ...] = ("todo", "running", "done", "unverified", "quarantined", "held", "cancelled")
ENDINGS: tuple[Ending, ...] = ("succeeded", "failed", "parked", "lost", "refused", "unverified")
NIGHTS_VERBS = 30


def fill(store: Store) -> None:
    """Store a few nights of work, units in every state, texts of every kind and gaps in all numbers."""
    for _, verb in zip(range(NIGHTS_VERBS), verbs(20), strict=False):
        verb(store)
    names = [f"u{number}/{ODD_TEXT}" for number in range(30)]
    specs = [UnitSpec(id=name, prompt=ODD_TEXT * 3, cwd=f"/{ODD_TEXT}", output="out") for name in names]
    store.add_campaign(Campaign(name="odd", env={"WORDS": ODD_TEXT}), specs, update=False, now=5.0)
    store.add_campaign(Campaign(name="gone"), specs, update=False, now=6.0)
    claimed = store.claim_units("odd", "max-2", 20, attempt_ids=names, lease_until=70.0, now=7.0)
    store.record_outcomes([_outcome(unit) for unit in claimed[2:]], now=8.0)
    store.save_progress(claimed[0].id, claimed[0].fence, phase="checking", result=_result())
    store.hold_units([f"odd/{names[25]}"], ODD_TEXT, now=9.0)
    store.cancel_units("odd", [f"odd/{names[26]}"], now=9.0)
    store.append_events([Event("unit.done", 10.0, unit=f"odd/{names[0]}", fields={"said": ODD_TEXT})])
    store.append_events([Event("slot.granted", 10.5), Event("engine.stopped", 11.0)])
    store.prune_events(before=2.0, through=40, limit=10)
    store.trim_events(keep=2000, keep_slots=0)
    store.save_slots([_slot("z"), _slot("a"), _slot(ODD_TEXT), _slot("gone")], [])
    store.save_slots([_slot("z", ttl=9.0)], ["gone"])
    store.save_state("governor", b"\x00\xff learnt")
    store.save_state("control_seen", b"17")
    store.add_spend([_spent(ODD_TEXT), _spent("")])
    for digest in ("d1", "d2"):
        store.create_client_key(ClientKey(name="team", models=("opus-*",), budget=KeyBudget(5.0, "day")), digest)
        if digest == "d1":
            store.revoke_client_key("team", now=5.0)
    store.delete_campaign("gone")


def _outcome(unit: Unit) -> OutcomeRecord:
    outcome = AttemptOutcome(ending=ENDINGS[unit.position % 6], reason=ODD_TEXT, resume_at=99.5, exit_code=3)
    return OutcomeRecord(
        unit_id=unit.id,
        fence=unit.fence,
        transition=transition_after(unit.counters, outcome, Policy(max_attempts=1 + unit.position // 6 % 2), 8.0),
        conversation_id=f"talk {ODD_TEXT}" if unit.position % 3 else None,
        denials=unit.position % 2,
        warnings=(ODD_TEXT,) if unit.position % 4 else (),
        result=_result(),
    )


def _spent(model: str) -> SpendRow:
    tokens = Tokens(input=1, output=2, cache_read=3, cache_write=4)
    return SpendRow(day="2026-11-16", key="a", account="b", model=model, requests=5, tokens=tokens, billed=1 / 3)


def _result() -> UnitResult:
    check = CheckRound(exit_code=1, seconds=0.1 + 0.2, tail=ODD_TEXT)
    tokens = Tokens(input=1, output=2, cache_read=3, cache_write=4)
    return UnitResult(
        agent="claude", answer=ODD_TEXT, feedback=ODD_TEXT, checks=(check,), cost=Cost(imputed=1 / 3), tokens=tokens
    )


def _slot(name: str, ttl: float = 60.0) -> StoredSlot:
    lease = Lease(token=5, ttl=ttl, expires_at=70.25, key=ODD_TEXT)
    return StoredSlot(id=name, scopes=("runs", "anthropic"), granted_at=1.0, session=ODD_TEXT, lease=lease)


def answers(store: Store) -> tuple[object, ...]:
    """What every verb that reads returns."""
    units = [unit.id for unit in store.units(limit=100_000).units]
    events = store.events(limit=100_000)
    return (
        everything(store),
        [store.units(campaign=each.name, limit=7) for each in store.campaigns()],
        {state: store.units(state=state, limit=100_000) for state in STATES},
        store.running_units(),
        store.unit("odd/none"),
        {unit: store.events(unit=unit) for unit in units[:50]},
        store.events(after=events[len(events) // 2].id, limit=3),
        store.append_events([]),
        [store.slot(slot.id) for slot in store.slots()],
        store.client_keys(),
        [store.load_state(key) for key in ("governor", "control_seen", "none")],
    )


def side(address: str, *, is_source: bool, busy_seconds: float = 2.0) -> CopySide:
    """The store at a path or an address, as a side of a copy."""
    if "dbname=" in address:
        return PostgresCopySide.at(address, busy_seconds=busy_seconds, is_source=is_source)
    return SqliteCopySide.at(address, busy_seconds=busy_seconds)


def die_at(table: str, source: str, destination: str) -> None:
    def report(stage: str, name: str, done: int, total: int) -> None:
        if (stage, name) == ("comparing", table):
            os.kill(os.getpid(), signal.SIGKILL)

    copy_store(side(source, is_source=True), side(destination, is_source=False), gone=frozenset(), report=report)


if __name__ == "__main__":
    die_at(sys.argv[3], sys.argv[1], sys.argv[2])
