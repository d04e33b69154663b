"""The contract of a store about accounts: which units belong to one, and what becomes of them.

It is a suite of its own beside `StoreContract`, with the same fixture `store`.
"""

from paceline.store import Store
from paceline.testing.store_steps import LEASE_UNTIL, NOW, add, claim, ended, names, record, specs, stored
from paceline.views.units import UnitQuery, read_units


class AccountContract:
    """Tests of units that are bound to an account by their conversation."""

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

        assert store.bound_units("night", "max-1", limit=10) == ["night/a", "night/b"]
        assert store.bound_units("night", "max-1", limit=1) == ["night/a"]
        assert store.bound_units("night", "max-2", limit=10) == ["night/d"]
        assert store.bound_units("day", "max-1", limit=10) == store.bound_units("none", "max-1", limit=10) == []

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

        assert store.wake_account("", campaign="night") == 1

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
