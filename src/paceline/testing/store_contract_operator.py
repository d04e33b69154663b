"""The contract of a store for what a person does: hold, retry, revive, cancel, and update a plan.

It is not used alone: `StoreContract` inherits it.
"""

import msgspec

from paceline.core.unit_lifecycle import Counters
from paceline.store import Added, StoppedUnits, Store, Unit, UnitCounts, UnitSpec
from paceline.testing.store_steps import NOW, add, claim, ended, record, specs, stored

replace = msgspec.structs.replace


class OperatorContract:
    """The operator's part of `StoreContract`."""

    def test_only_waiting_units_are_held(self, store: Store) -> None:
        add(store, specs("runs", "parked", "todo"))
        _, parked = claim(store, 2)
        record(store, [ended(parked, "parked", resume_at=NOW + 30.0)])

        held = store.hold_units(
            ["night/runs", "night/parked", "night/todo", "night/x", "x/y"], "ask me", now=NOW + 20.0
        )

        assert (held, store.next_resume_at()) == (2, None)
        assert store.counts() == {"night": UnitCounts(running=1, held=2)}
        assert stored(store, "night/todo") == Unit(
            id="night/todo",
            campaign="night",
            spec=specs("todo")[0],
            position=2,
            state="held",
            reason="ask me",
            ended_at=NOW + 20.0,
        )

    def test_stopped_units_are_counted_by_campaign_state_and_reason(self, store: Store) -> None:
        add(store, specs("z", "done", "y", "x"))
        add(store, specs("other"), "day")
        store.hold_units(["night/y", "night/x"], "ask me", now=NOW)
        store.hold_units(["night/z"], "paused", now=NOW)
        store.hold_units(["day/other"], "ask me", now=NOW)

        found = store.stopped_units(limit=10)

        assert found == [
            StoppedUnits(campaign="night", state="held", reason="ask me", units=2, example="night/y"),
            StoppedUnits(campaign="night", state="held", reason="paused", units=1, example="night/z"),
            StoppedUnits(campaign="day", state="held", reason="ask me", units=1, example="day/other"),
        ]
        assert store.stopped_units(limit=1) == found[:1]

    def test_a_retry_gives_stopped_units_a_new_life(self, store: Store) -> None:
        add(store, specs("quarantined", "done", "held"))
        first, second = claim(store, 2)
        record(store, [ended(first, "failed", conversation_id="talk"), ended(second, "succeeded")])
        store.hold_units(["night/held"], "ask me", now=NOW)

        assert store.retry_units("night") == 2

        assert store.counts() == {"night": UnitCounts(todo=2, done=1)}
        assert stored(store, first.id) == replace(
            first, state="todo", counters=Counters(), conversation_id="talk", lease_until=None, phase=None
        )

    def test_a_cancelled_campaign_names_what_ran_and_takes_no_late_results(self, store: Store) -> None:
        add(store, specs("done", "runs", "parked", "todo"))
        done, runs, parked = claim(store, 3)
        record(store, [ended(done, "succeeded"), ended(parked, "parked", resume_at=NOW + 30.0)])

        assert (store.cancel_units("night", now=NOW + 20.0), store.cancel_units("night", now=NOW + 30.0)) == (
            ["night/runs"],
            [],
        )

        assert record(store, [ended(runs, "succeeded")]) == [False]
        assert store.counts() == {"night": UnitCounts(done=1, cancelled=3)}
        assert stored(store, runs.id) == replace(
            runs, state="cancelled", lease_until=None, ended_at=NOW + 20.0, phase=None
        )
        assert (store.claimable(), store.next_resume_at(), store.running_units()) == ({}, None, [])

    def test_a_retry_of_named_units_leaves_the_others(self, store: Store) -> None:
        add(store, specs("a", "b"))
        add(store, specs("a"), "day")
        store.hold_units(["night/a", "night/b", "day/a"], "ask me", now=NOW)

        assert store.retry_units("night", ["night/b", "day/a", "night/x", "other/b"]) == 1

        assert [stored(store, name).state for name in ("night/a", "night/b", "day/a")] == ["held", "todo", "held"]

    def test_a_cancel_of_named_units_leaves_the_others(self, store: Store) -> None:
        add(store, specs("runs", "goes-on", "waits", "stays"))
        claim(store, 2)

        assert store.cancel_units("night", ["night/runs", "night/waits"], now=NOW) == ["night/runs"]

        assert store.counts() == {"night": UnitCounts(running=1, todo=1, cancelled=2)}
        assert store.running_units()[0].id == "night/goes-on"

    def test_cancelled_units_are_revived_after_a_pause(self, store: Store) -> None:
        add(store, specs("runs", "waits", "held"))
        (runs,) = claim(store)
        store.hold_units(["night/held"], "ask me", now=NOW)
        store.cancel_units("night", ["night/runs", "night/waits"], now=NOW + 1.0)

        assert store.revive_units("night", ["night/runs"], resume_at=NOW + 16.0) == 1
        assert store.revive_units("night", resume_at=NOW + 17.0) == 1

        assert store.counts() == {"night": UnitCounts(todo=2, held=1)}
        assert stored(store, "night/runs") == replace(
            runs, state="todo", counters=Counters(), lease_until=None, resume_at=NOW + 16.0, phase=None
        )
        assert record(store, [ended(runs, "succeeded")]) == [False]
        store.wake_units(now=NOW + 17.0)
        assert [unit.id for unit in claim(store, 2)] == ["night/runs", "night/waits"]

    def test_an_update_makes_a_quarantined_unit_ready_again(self, store: Store) -> None:
        add(store, specs("bad", "held"))
        (bad,) = claim(store)
        record(store, [ended(bad, "failed")])
        store.hold_units(["night/held"], "ask me", now=NOW)
        changed = [UnitSpec(id=name, prompt="better") for name in ("bad", "held")]

        assert add(store, changed, update=True) == Added(updated=("night/bad", "night/held"))

        assert store.counts() == {"night": UnitCounts(todo=1, held=1)}
        assert stored(store, "night/bad") == replace(
            bad, state="todo", spec=changed[0], counters=Counters(), lease_until=None, phase=None
        )

    def test_waiting_units_are_hastened_and_never_delayed(self, store: Store) -> None:
        add(store, specs("late", "soon", "todo"))
        late, soon = claim(store, 2)
        record(store, [ended(late, "parked", resume_at=NOW + 600.0), ended(soon, "parked", resume_at=NOW + 5.0)])

        store.hasten_units({"night/late": NOW + 30.0, "night/soon": NOW + 30.0, "night/todo": NOW + 30.0, "x/y": NOW})

        times = [stored(store, f"night/{name}").resume_at for name in ("late", "soon", "todo")]
        assert times == [NOW + 30.0, NOW + 5.0, None]
        assert store.next_resume_at() == NOW + 5.0
