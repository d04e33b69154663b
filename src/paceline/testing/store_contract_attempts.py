"""The contract of a store for what it keeps of attempts: when a conversation began, what a unit waits for, denials.

It is not used alone: `StoreContract` inherits it.
"""

import msgspec

from paceline.store import Store, UnitCounts
from paceline.testing.store_steps import NOW, add, claim, ended, names, record, specs, stored

replace = msgspec.structs.replace


class AttemptContract:
    """The part of `StoreContract` about attempts."""

    def test_a_unit_that_backs_off_is_neither_parked_nor_woken_with_an_account(self, store: Store) -> None:
        add(store, specs("parked", "refused"))
        parked, refused = claim(store, 2)
        record(store, [ended(parked, "parked", resume_at=NOW + 900.0), ended(refused, "refused")])
        assert store.counts() == {"night": UnitCounts(todo=2, parked=1)}

        assert store.wake_account("max-1") == 1

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

        assert store.bound_units("night", "max-1", limit=9) == ["night/cheap", "night/middle", "night/dear"]
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
