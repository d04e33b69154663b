"""The same random verbs, the same answers: a store on a disk, reopened at any point, against one in memory."""

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.postgres_server import empty_schema

from paceline.core.unit_lifecycle import AttemptOutcome, Ending, Policy, UnitState, transition_after
from paceline.errors import IllegalStep, PacelineError
from paceline.events import Event
from paceline.store import (
    Campaign,
    CheckRound,
    Lease,
    OutcomeRecord,
    Phase,
    SqliteStore,
    Store,
    StoredSlot,
    Tokens,
    Unit,
    UnitResult,
    UnitSpec,
)
from paceline.store.plan_import import SPECS_AT_ONCE
from paceline.store.postgres import PostgresStore

START = 1_000.0
POLICY = Policy(max_attempts=2, max_windows_spent=2, max_refusals=3, max_losses=3)
MEMORY_DISK = Path("/dev/shm")  # no power is lost here, so the disk need not be waited for

campaign_names = st.sampled_from(["night", "day", "a/b", ""])
accounts = st.sampled_from(["max-1", "max-2"])
unit_names = st.sampled_from(["a", "b", "c", "d/e", "\x00", "ü", ""])
unit_specs = st.builds(
    UnitSpec,
    id=unit_names,
    prompt=st.sampled_from(["", "do it", "do it now\x00", "half \ud800"]),
    output=st.sampled_from([None, "out.md"]),
)
unit_ids = st.builds(lambda campaign, name: f"{campaign}/{name}", campaign_names, unit_names)
reasons = st.sampled_from(["", "quota", "half \udfff"])
sessions = st.sampled_from([None, "talk", "half \udfff"])
waits = st.sampled_from([0.0, 1.0, 5.0, 60.0, float("inf")])
endings: st.SearchStrategy[Ending] = st.sampled_from(
    [
        "succeeded",
        "failed",
        "parked",
        "refused",
        "unreachable",
        "lost",
        "try_later",
        "account_stopped",
        "barred",
        "check_failed",
        "unverified",
        "cancelled",
    ]
)
slot_ids = st.sampled_from(["one", "two", "three \x00"])
slots = st.builds(
    StoredSlot,
    id=slot_ids,
    scopes=st.just(("runs", "anthropic")),
    session=st.sampled_from([None, "ü", "half \udfff"]),
    granted_at=st.sampled_from([None, START]),
    lease=st.none() | st.builds(Lease, token=st.integers(1, 9), ttl=st.just(60.0), expires_at=st.just(START + 60.0)),
)
states: st.SearchStrategy[UnitState | None] = st.sampled_from(
    [None, "todo", "running", "done", "unverified", "quarantined", "held", "cancelled"]
)

phases: st.SearchStrategy[Phase | None] = st.sampled_from([None, "working", "checking", "delivering"])
results = st.builds(
    UnitResult,
    turns=st.none() | st.integers(0, 3),
    tokens=st.none() | st.builds(Tokens, input=st.integers(0, 9)),
    answer=reasons,
    feedback=st.none() | reasons,
    checks=st.lists(st.builds(CheckRound, exit_code=st.just(1), seconds=st.just(0.5), tail=reasons), max_size=2).map(
        tuple
    ),
)

Verb = Callable[[Store], object]


def answer(store: Store, verb: Verb) -> object:
    """What it returned, or which error it raised in which words."""
    try:
        return verb(store)
    except PacelineError as error:
        return type(error), str(error)


class Disk(Protocol):
    """Where a store keeps what it stores."""

    def open(self) -> Store: ...

    def remove(self) -> None: ...


class SqliteDisk:
    """A SQLite file."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(dir=MEMORY_DISK if MEMORY_DISK.is_dir() else None)

    def open(self) -> Store:
        return SqliteStore(Path(self._folder.name) / "paceline.db")

    def remove(self) -> None:
        self._folder.cleanup()


class PostgresDisk:
    """A schema of a PostgreSQL database."""

    def __init__(self, server_url: str) -> None:
        self._schema = contextlib.ExitStack()
        self._url = self._schema.enter_context(empty_schema(server_url))

    def open(self) -> Store:
        return PostgresStore(self._url)

    def remove(self) -> None:
        self._schema.close()


class StoreMachine(RuleBasedStateMachine):
    """`both` runs a verb against both and compares; `looks_the_same` compares all that can be seen."""

    new_disk: Callable[[], Disk] = SqliteDisk

    @initialize()
    def open(self) -> None:
        self.disk = self.new_disk()
        self.memory = SqliteStore.in_memory()
        self.stored = self.disk.open()
        self.now = START
        self.claims: list[Unit] = []

    def both(self, verb: Verb) -> object:
        expected = answer(self.memory, verb)
        assert answer(self.stored, verb) == expected
        return expected

    @rule()
    def reopen(self) -> None:
        self.stored.close()
        self.stored = self.disk.open()

    @rule(seconds=st.sampled_from([1.0, 10.0, 700.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    # -- campaigns ----------------------------------------------------------------------------------

    @rule(
        name=campaign_names,
        priority=st.integers(-2, 2),
        specs=st.lists(unit_specs, max_size=6, unique_by=lambda spec: spec.id) | st.lists(unit_specs, max_size=3),
        update=st.booleans(),
    )
    def add(self, name: str, priority: int, specs: list[UnitSpec], update: bool) -> None:
        campaign = Campaign(name=name, priority=priority)
        self.both(lambda store: store.add_campaign(campaign, specs, update=update, now=self.now))

    @rule(names=st.lists(unit_names.filter(bool), min_size=1, unique=True), update=st.booleans())
    def add_plainly(self, names: list[str], update: bool) -> None:
        specs = [UnitSpec(id=name, prompt=name) for name in names]
        self.both(lambda store: store.add_campaign(Campaign(name="night"), specs, update=update, now=self.now))

    @precondition(lambda self: self.memory.campaigns())  # a new one would use up a number, which cursors show
    @rule(data=st.data(), account=accounts)
    def add_by_halves(self, data: st.DataObject, account: str) -> None:
        """A process that is killed while it adds to a campaign: whatever is done after that, nobody sees any of it."""
        name = data.draw(st.sampled_from([campaign.name for campaign in self.memory.campaigns()]))
        names = ["a", "b", "c", "d/e", *(str(number) for number in range(SPECS_AT_ONCE))]
        specs = [UnitSpec(id=each, prompt=name) for each in names]
        steps = self.stored.add_campaign_in_steps(Campaign(name=name), specs, update=True, now=self.now)
        next(steps)
        steps.close()
        self.look_at_one(f"{name}/a")
        self.claim(name, account, 3)

    @rule(name=campaign_names, state=st.sampled_from(["active", "paused", "cancelled"]))
    def set_campaign(self, name: str, state: str) -> None:
        campaign = msgspec.convert({"name": name, "state": state}, Campaign)
        self.both(lambda store: store.set_campaign(campaign))

    @rule(name=campaign_names)
    def delete_campaign(self, name: str) -> None:
        self.both(lambda store: store.delete_campaign(name))

    # -- units --------------------------------------------------------------------------------------

    @rule(name=campaign_names, account=accounts, limit=st.integers(-1, 4))
    def claim(self, name: str, account: str, limit: int) -> None:
        attempts = [f"{len(self.claims)}-{number}" for number in range(3)]
        claimed = self.both(
            lambda store: store.claim_units(
                name, account, limit, attempt_ids=attempts, lease_until=self.now + 60.0, now=self.now
            )
        )
        if isinstance(claimed, list):
            self.claims += claimed

    @precondition(lambda self: self.claims)
    @rule(
        data=st.data(),
        ending=endings,
        reason=reasons,
        wait=waits,
        opened=st.booleans(),
        session=sessions,
        account=st.none() | accounts,
        result=st.none() | results,
    )
    def settle(
        self,
        data: st.DataObject,
        ending: Ending,
        reason: str,
        wait: float,
        opened: bool,
        session: str | None,
        account: str | None,
        result: UnitResult | None,
    ) -> None:
        """Of units claimed at any time: the late and the repeated among them must change nothing."""
        units = data.draw(st.lists(st.sampled_from(self.claims[-8:]), min_size=1, max_size=3))
        outcome = AttemptOutcome(ending=ending, reason=reason, resume_at=self.now + wait, opened_window=opened)
        settled = [
            OutcomeRecord(
                unit_id=unit.id,
                fence=unit.fence,
                transition=transition_after(unit.counters, outcome, POLICY, self.now),
                account=account,
                conversation_id=session,
                result=result,
            )
            for unit in units
        ]
        self.both(lambda store: store.record_outcomes(settled, now=self.now))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), phase=phases, result=st.none() | results)
    def save_progress(self, data: st.DataObject, phase: Phase | None, result: UnitResult | None) -> None:
        unit = data.draw(st.sampled_from(self.claims[-8:]))
        self.both(lambda store: store.save_progress(unit.id, unit.fence, phase=phase, result=result))

    @rule(identifiers=st.lists(unit_ids, max_size=3))
    def accept(self, identifiers: list[str]) -> None:
        self.both(lambda store: store.move_units(identifiers, "done", "accepted", now=self.now))

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        units = data.draw(st.lists(st.sampled_from(self.claims[-8:]), max_size=4))
        fences = {unit.id: unit.fence for unit in units}
        self.both(lambda store: store.renew_units(fences, lease_until=self.now + 60.0))

    @rule(limit=st.sampled_from([0, 1, 2, 10_000]))
    def wake(self, limit: int) -> None:
        self.both(lambda store: store.wake_units(now=self.now, limit=limit))

    @rule(account=st.sampled_from(["max-1", "max-2", ""]), limit=st.sampled_from([1, 10_000]))
    def wake_account(self, account: str, limit: int) -> None:
        self.both(lambda store: store.wake_units(account=account, limit=limit))

    @rule(identifiers=st.lists(unit_ids, max_size=3), reason=reasons)
    def hold(self, identifiers: list[str], reason: str) -> None:
        self.both(lambda store: store.move_units(identifiers, "held", reason, now=self.now))

    @rule(name=campaign_names, identifiers=st.none() | st.lists(unit_ids, max_size=3))
    def retry(self, name: str, identifiers: list[str] | None) -> None:
        self.both(lambda store: store.retry_units(name, identifiers))

    @rule(name=campaign_names, identifiers=st.none() | st.lists(unit_ids, max_size=3))
    def cancel(self, name: str, identifiers: list[str] | None) -> None:
        self.both(lambda store: store.cancel_units(name, identifiers, now=self.now))

    @rule(name=campaign_names, identifiers=st.none() | st.lists(unit_ids, max_size=3))
    def revive(self, name: str, identifiers: list[str] | None) -> None:
        self.both(lambda store: store.retry_units(name, identifiers, also_cancelled=True))

    @rule(seconds=st.sampled_from([0.0, 4.0, 3600.0]))
    def set_the_clock_back(self, seconds: float) -> None:
        self.both(lambda store: store.hasten_units({}, set_back_to=self.now - seconds))

    @rule(identifier=unit_ids)
    def forget(self, identifier: str) -> None:
        self.both(lambda store: store.forget_conversation(identifier))

    # -- the engine's own ---------------------------------------------------------------------------

    @rule(units=st.lists(st.none() | unit_ids, max_size=3), detail=reasons)
    def append_events(self, units: list[str | None], detail: str) -> None:
        name = "unit.held" if detail else "slot.granted"
        events = [Event(name, self.now, unit=unit, fields={"detail": (detail, self.now)}) for unit in units]
        self.both(lambda store: store.append_events(events))

    @rule(keep=st.integers(0, 4), keep_slots=st.none() | st.integers(0, 2))
    def trim_events(self, keep: int, keep_slots: int | None) -> None:
        self.both(lambda store: store.trim_events(keep=keep, keep_slots=keep_slots))

    @rule(age=st.sampled_from([0.0, 1.0, 60.0]), through=st.integers(0, 30), limit=st.integers(1, 4))
    def prune_events(self, age: float, through: int, limit: int) -> None:
        self.both(lambda store: store.trim_events(before=self.now - age, through=through, limit=limit))

    @rule(name=campaign_names, identifier=unit_ids)
    def fail_together(self, name: str, identifier: str) -> None:
        """All of it is undone, whatever the state it began in."""

        def change_and_fail(store: Store) -> None:
            with store.together():
                store.append_events([Event("slot.granted", self.now), Event("unit.held", self.now)])
                store.move_units([identifier], "held", "why", now=self.now)
                store.trim_events(keep=1)
                store.save_state("governor", b"undone")
                store.retry_units(name)
                raise IllegalStep("undone")

        self.both(change_and_fail)

    @rule(owner=accounts, seconds=st.sampled_from([0.0, 1e9]), resigns=st.booleans())
    def lead(self, owner: str, seconds: float, resigns: bool) -> None:
        self.both(lambda store: store.lead(owner, until=self.now + seconds, now=self.now))
        if resigns:
            self.both(lambda store: store.resign(owner))

    @rule(kept=st.lists(slots, max_size=3), dropped=st.lists(slot_ids, max_size=2))
    def save_slots(self, kept: list[StoredSlot], dropped: list[str]) -> None:
        self.both(lambda store: store.save_slots(kept, dropped))

    @rule(identifier=slot_ids)
    def look_at_a_slot(self, identifier: str) -> None:
        self.both(lambda store: store.slots(identifier))

    @rule(value=st.binary(max_size=5))
    def save_state(self, value: bytes) -> None:
        self.both(lambda store: store.save_state("governor", value))

    # -- looking in ---------------------------------------------------------------------------------

    @rule(identifier=unit_ids)
    def look_at_one(self, identifier: str) -> None:
        self.both(lambda store: store.unit(identifier))

    @rule(name=st.none() | campaign_names, state=states, limit=st.integers(0, 4))
    def look_at_pages(self, name: str | None, state: UnitState | None, limit: int) -> None:
        def all_pages(store: Store) -> list[object]:
            pages = [store.units(campaign=name, state=state, limit=limit)]
            while pages[-1].cursor is not None:
                pages.append(store.units(campaign=name, state=state, limit=limit, cursor=pages[-1].cursor))
            return list(pages)

        self.both(all_pages)

    @rule(after=st.integers(0, 5), limit=st.integers(0, 3), unit=st.none() | unit_ids)
    def look_at_events(self, after: int, limit: int, unit: str | None) -> None:
        self.both(lambda store: store.events(after=after, limit=limit, unit=unit))

    @invariant()
    def looks_the_same(self) -> None:
        def all_there_is(store: Store) -> tuple[object, ...]:
            return (
                store.campaigns(),
                store.counts(),
                store.claimable(),
                store.next_resume_at(),
                store.running_units(also_cancelled=True),
                store.running_units(),
                store.units(limit=1_000),
                store.events(),
                store.slots(),
                store.load_state("governor"),
            )

        self.both(all_there_is)

    def teardown(self) -> None:
        self.memory.close()
        self.stored.check()
        self.stored.close()
        self.disk.remove()


def agree(new_disk: Callable[[], Disk], *, examples: int, steps: int) -> None:
    class Machine(StoreMachine):
        pass

    Machine.new_disk = staticmethod(new_disk)
    run_state_machine_as_test(Machine, settings=settings(max_examples=examples, stateful_step_count=steps))


def test_stores_agree() -> None:
    agree(SqliteDisk, examples=60, steps=40)


def test_stores_agree_on_postgres(postgres_url: str) -> None:
    agree(lambda: PostgresDisk(postgres_url), examples=12, steps=40)


@pytest.mark.soak
def test_stores_agree_for_long() -> None:
    agree(SqliteDisk, examples=3_000, steps=60)


@pytest.mark.soak
def test_stores_agree_for_long_on_postgres(postgres_url: str) -> None:
    agree(lambda: PostgresDisk(postgres_url), examples=300, steps=60)
