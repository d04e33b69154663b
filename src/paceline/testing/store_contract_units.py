"""The part of `StoreContract` for units: their accounts, their attempts, and what a person does to them."""

import msgspec

from paceline.core.unit_lifecycle import Counters
from paceline.store import Added, Page, StoppedUnits, Store, Unit, UnitCounts, UnitSpec
from paceline.testing.store_steps import (
    LEASE_UNTIL,
    NOW,
    add,
    claim,
    ended,
    names,
    record,
    specs,
    stored,
    without_prompt,
)
from paceline.views.units import UnitQuery, read_units

replace = msgspec.structs.replace


class UnitContract:
    """The part of `StoreContract` for units."""

    def test_only_waiting_units_are_held(self, store: Store) -> None:
        add(store, specs("runs", "parked", "todo"))
        _, parked = claim(store, 2)
        record(store, [ended(parked, "parked", resume_at=NOW + 30.0)])

        held = store.move_units(
            ["night/runs", "night/parked", "night/todo", "night/x", "x/y"], "held", "ask me", now=NOW + 20.0
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
        store.move_units(["night/y", "night/x"], "held", "ask me", now=NOW)
        store.move_units(["night/z"], "held", "paused", now=NOW)
        store.move_units(["day/other"], "held", "ask me", now=NOW)

        found = store.stopped_units(limit=10)

        assert found == [
            StoppedUnits(campaign="night", state="held", reason="ask me", units=2, example="night/y"),
            StoppedUnits(campaign="night", state="held", reason="paused", units=1, example="night/z"),
            StoppedUnits(campaign="day", state="held", reason="ask me", units=1, example="day/other"),
        ]
        assert store.stopped_units(limit=1) == found[:1]

    def test_a_retry_gives_stopped_units_a_new_life_and_forgets_no_attempt_and_no_park(self, store: Store) -> None:
        add(store, specs("quarantined", "done", "held"))
        first, second = claim(store, 2)
        parked = ended(first, "parked", resume_at=NOW + 20.0, conversation_id="talk")
        record(store, [parked, ended(second, "succeeded")])
        store.move_units(["night/held"], "held", "ask me", now=NOW)
        store.wake_units(now=NOW + 20.0)
        (again,) = claim(store)
        record(store, [ended(again, "failed", conversation_id="talk")])

        assert store.retry_units("night") == 2

        assert store.counts() == {"night": UnitCounts(todo=2, done=1)}
        kept = Counters(attempts=2, parks=1)
        assert stored(store, first.id) == replace(again, state="todo", counters=kept, lease_until=None, phase=None)

    def test_a_cancelled_campaign_names_what_ran_and_takes_no_late_results(self, store: Store) -> None:
        add(store, specs("done", "runs", "parked", "todo"))
        done, runs, parked = claim(store, 3)
        record(store, [ended(done, "succeeded"), ended(parked, "parked", resume_at=NOW + 30.0)])

        assert (store.cancel_units("night", now=NOW + 20.0), store.cancel_units("night", now=NOW + 30.0)) == (
            ["night/runs"],
            [],
        )
        assert [unit.id for unit in store.running_units(also_cancelled=True)] == ["night/runs"]

        assert record(store, [ended(runs, "succeeded")]) == [False]
        assert store.counts() == {"night": UnitCounts(done=1, cancelled=3)}
        assert stored(store, runs.id) == replace(
            runs, state="cancelled", lease_until=None, ended_at=NOW + 20.0, phase=None
        )
        assert (store.claimable(), store.next_resume_at(), store.running_units()) == ({}, None, [])
        assert store.running_units(also_cancelled=True) == []

    def test_a_retry_of_named_units_leaves_the_others(self, store: Store) -> None:
        add(store, specs("a", "b"))
        add(store, specs("a"), "day")
        store.move_units(["night/a", "night/b", "day/a"], "held", "ask me", now=NOW)

        assert store.retry_units("night", ["night/b", "day/a", "night/x", "other/b"]) == 1

        assert [stored(store, name).state for name in ("night/a", "night/b", "day/a")] == ["held", "todo", "held"]

    def test_a_cancel_of_named_units_leaves_the_others(self, store: Store) -> None:
        add(store, specs("runs", "goes-on", "waits", "stays"))
        claim(store, 2)

        assert store.cancel_units("night", ["night/runs", "night/waits"], now=NOW) == ["night/runs"]

        assert store.counts() == {"night": UnitCounts(running=1, todo=1, cancelled=2)}
        assert store.running_units()[0].id == "night/goes-on"

    def test_a_revived_unit_runs_once_its_attempt_has_ended(self, store: Store) -> None:
        add(store, specs("runs", "waits", "held"))
        (runs,) = claim(store)
        store.move_units(["night/held"], "held", "ask me", now=NOW)
        store.cancel_units("night", ["night/runs", "night/waits"], now=NOW + 1.0)

        assert store.retry_units("night", ["night/runs"], also_cancelled=True) == 1
        assert store.retry_units("night", ["night/runs", "night/waits"], also_cancelled=True) == 1

        assert store.counts() == {"night": UnitCounts(todo=2, held=1)}
        waiting = replace(runs, state="todo", counters=Counters(attempts=1), resume_at=runs.lease_until, phase=None)
        assert stored(store, "night/runs") == waiting
        assert store.running_units(also_cancelled=True) == [without_prompt(waiting)]
        assert (store.wake_units(now=LEASE_UNTIL + 1.0), store.next_resume_at()) == (0, None)
        assert [unit.id for unit in claim(store, 2)] == ["night/waits"]

        store.move_units(["night/runs"], "held", "ask me", now=NOW)
        store.retry_units("night", ["night/runs"])
        assert (store.wake_units(now=LEASE_UNTIL + 1.0), claim(store, 2)) == (0, [])
        assert record(store, [ended(runs, "succeeded")]) == [False]
        assert [unit.id for unit in claim(store, 2)] == ["night/runs"]

    def test_an_update_makes_a_quarantined_unit_ready_again(self, store: Store) -> None:
        add(store, specs("bad", "held"))
        (bad,) = claim(store)
        record(store, [ended(bad, "failed")])
        store.move_units(["night/held"], "held", "ask me", now=NOW)
        changed = [UnitSpec(id=name, prompt="better") for name in ("bad", "held")]

        assert add(store, changed, update=True) == Added(updated=("night/bad", "night/held"))

        assert store.counts() == {"night": UnitCounts(todo=1, held=1)}
        assert stored(store, "night/bad") == replace(
            bad, state="todo", spec=changed[0], counters=Counters(attempts=1), lease_until=None, phase=None
        )

    def test_waiting_units_are_hastened_and_never_delayed(self, store: Store) -> None:
        add(store, specs("late", "soon", "todo"))
        late, soon = claim(store, 2)
        record(store, [ended(late, "parked", resume_at=NOW + 600.0), ended(soon, "parked", resume_at=NOW + 5.0)])

        store.hasten_units({"night/late": NOW + 30.0, "night/soon": NOW + 30.0, "night/todo": NOW + 30.0, "x/y": NOW})

        times = [stored(store, f"night/{name}").resume_at for name in ("late", "soon", "todo")]
        assert times == [NOW + 30.0, NOW + 5.0, None]
        assert store.next_resume_at() == NOW + 5.0

    def test_a_unit_that_backs_off_is_neither_parked_nor_woken_with_an_account(self, store: Store) -> None:
        add(store, specs("parked", "refused"))
        parked, refused = claim(store, 2)
        record(store, [ended(parked, "parked", resume_at=NOW + 900.0), ended(refused, "refused")])
        assert store.counts() == {"night": UnitCounts(todo=2, parked=1)}

        assert store.wake_units(account="max-1") == 1

        assert store.counts() == {"night": UnitCounts(todo=2)}
        assert names(claim(store, 2)) == ["parked"]
        assert stored(store, "night/refused").resume_at == NOW + 30.0

    def test_a_conversation_keeps_its_beginning_over_its_attempts(self, store: Store) -> None:
        add(store, specs("a"))
        (unit,) = claim(store)
        record(store, [ended(unit, "lost", conversation_id="talk")])

        resumed = store.claim_units("night", "max-1", 1, attempt_ids=["b"], lease_until=NOW, now=NOW + 500.0)
        assert [(each.started_at, each.begun_at) for each in resumed] == [(NOW + 500.0, NOW)]
        assert stored(store, "night/a") == resumed[0]

        record(store, [ended(resumed[0], "lost")])
        store.wake_units(now=NOW + 900.0)
        afresh = store.claim_units("night", "max-1", 1, attempt_ids=["c"], lease_until=NOW, now=NOW + 900.0)
        assert [(each.started_at, each.begun_at) for each in afresh] == [(NOW + 900.0, NOW + 900.0)]

    def test_conversations_that_cost_least_to_finish_continue_first(self, store: Store) -> None:
        add(store, specs("dear", "cheap", "fresh", "middle"))
        dear, cheap, fresh, middle = claim(store, 4)
        costs = [(dear, 900_000), (cheap, 20_000), (middle, 300_000)]
        talks = [replace(ended(unit, "lost", conversation_id=unit.spec.id), resume_cost=cost) for unit, cost in costs]
        record(store, [*talks, ended(fresh, "lost")])

        assert names(store.units(campaign="night", bound_to="max-1", limit=9).units) == [
            "cheap",
            "middle",
            "dear",
        ]
        assert names(claim(store, 2)) == ["cheap", "middle"]
        assert names(claim(store, 2)) == ["dear", "fresh"]

    def test_denials_and_warnings_are_kept_until_the_next_attempt(self, store: Store) -> None:
        add(store, specs("a", "b"))
        held, done = claim(store, 2)
        denied = replace(ended(held, "denied"), denials=3)
        warned = replace(ended(done, "succeeded"), denials=1, warnings=("1 tool call was denied", "half \udfff"))
        record(store, [denied, warned])

        kept = [stored(store, unit_id) for unit_id in ("night/a", "night/b")]
        assert [(unit.state, unit.denials, unit.warnings) for unit in kept] == [
            ("held", 3, ()),
            ("done", 1, ("1 tool call was denied", "half ?")),
        ]

        store.retry_units("night")
        assert stored(store, "night/a").denials == 0

    def test_a_conversation_without_an_account_is_not_kept(self, store: Store) -> None:
        add(store, specs("a"))
        (unit,) = claim(store, account="")
        record(store, [ended(unit, "refused", conversation_id="talk")])
        store.wake_units(now=NOW + 1e6)

        assert stored(store, "night/a").conversation_id is None
        assert store.claimable() == {("night", None): 1}
        assert names(claim(store, account="max-1")) == ["a"]

    def test_a_parked_unit_that_gives_up_its_conversation_waits_no_longer(self, store: Store) -> None:
        add(store, specs("a"))
        (unit,) = claim(store)
        record(store, [ended(unit, "parked", resume_at=NOW + 500.0, conversation_id="talk")])

        store.forget_conversation("night/a")

        assert (stored(store, "night/a").resume_at, store.next_resume_at()) == (None, None)
        assert names(claim(store, account="max-2")) == ["a"]

    def test_a_claim_for_conversations_only_leaves_all_other_units(self, store: Store) -> None:
        add(store, specs("a", "b", "c"))
        (unit,) = claim(store, account="max-1")
        record(store, [ended(unit, "refused", conversation_id="talk")])
        store.wake_units(now=NOW + 1e6)

        claimed = store.claim_units(
            "night", "max-1", 3, attempt_ids=["x", "y", "z"], lease_until=LEASE_UNTIL, now=NOW, only_bound=True
        )

        assert names(claimed) == ["a"]
        assert store.claimable() == {("night", None): 2}

    def test_the_units_that_wait_for_an_account_are_found_in_plan_order(self, store: Store) -> None:
        add(store, specs("a", "b", "c", "d", "e"))
        add(store, specs("x"), "day")
        ends = {"a": "talk-a", "b": "talk-b", "c": None, "d": "talk-d"}
        units = [claim(store, account="max-1" if name != "d" else "max-2")[0] for name in ends]
        talks = list(ends.values())
        record(store, [ended(unit, "refused", conversation_id=talk) for unit, talk in zip(units, talks, strict=True)])
        store.wake_units(now=NOW + 1e6)

        assert names(store.units(campaign="night", bound_to="max-1", limit=10).units) == ["a", "b"]
        assert names(store.units(campaign="night", bound_to="max-1", limit=1).units) == ["a"]
        assert names(store.units(campaign="night", bound_to="max-2", limit=10).units) == ["d"]
        assert store.units(campaign="day", bound_to="max-1") == Page(units=())

    def test_units_are_found_by_a_part_of_their_id_reason_or_account(self, store: Store) -> None:
        _units_in_all_states(store)

        assert _found(store, UnitQuery(search="LATER")) == ["later-1", "later-2"]
        assert _found(store, UnitQuery(search="it fail")) == ["failed"]
        assert _found(store, UnitQuery(search="max-2")) == ["runs"]
        assert _found(store, UnitQuery(search="later", campaign="day")) == []
        assert _found(store, UnitQuery(search="50%_")) == []

    def test_units_that_need_attention_come_first_page_by_page(self, store: Store) -> None:
        _units_in_all_states(store)

        ordered = _found(store, UnitQuery(order="attention"))
        assert ordered == _found(store, UnitQuery(order="attention"), limit=1)
        assert ordered == ["runs", "failed", "later-1", "later-2", "x", "done"]
        assert _found(store, UnitQuery(order="attention", search="n"), limit=2) == [
            *("runs", "failed", "later-1", "later-2"),  # in the campaign `night`
            "done",
        ]

    def test_a_renamed_account_keeps_its_units_and_their_conversations(self, store: Store) -> None:
        add(store, specs("a", "b"))
        add(store, specs("c"), "day")
        for campaign, limit in (("night", 2), ("day", 1)):
            units = claim(store, limit, campaign=campaign, account="old")
            record(store, [ended(unit, "refused", conversation_id="talk") for unit in units])
        store.wake_units(now=NOW + 1e6)

        assert store.rename_account("night", "old", "new") == 2
        assert store.rename_account("night", "old", "new") == 0

        assert store.claimable() == {("night", "new"): 2, ("day", "old"): 1}
        assert names(claim(store, 2, account="new")) == ["a", "b"]

    def test_the_units_of_one_campaign_can_be_woken_alone(self, store: Store) -> None:
        for campaign in ("night", "day"):
            add(store, specs("a"), campaign)
            (unit,) = claim(store, campaign=campaign, account="")
            record(store, [ended(unit, "parked", resume_at=NOW + 500.0)])

        assert store.wake_units(account="", campaign="night") == 1

        assert store.claimable() == {("night", None): 1}


def _units_in_all_states(store: Store) -> None:
    add(store, specs("done", "failed", "runs", "later-1", "later-2"))
    add(store, specs("x"), "day")
    done, failed = claim(store, 2, account="own")
    record(store, [ended(done, "succeeded"), ended(failed, "failed")])
    claim(store, account="max-2")


def _found(store: Store, query: UnitQuery, limit: int = 10) -> list[str]:
    """Return the names of all units that the query finds, read in pages of that length."""
    found: list[str] = []
    cursor: str | None = None
    for _ in range(100):
        page = read_units(store, query, limit=limit, cursor=cursor)
        found += names(page.units)
        cursor = page.cursor
        if cursor is None:
            return found
    raise AssertionError("the pages have no end")
