"""The contract of a store for what the engine keeps for itself: events, slots, states, leadership.

It is not used alone: `StoreContract` inherits it.
"""

import msgspec
import pytest

from paceline.core import Deferred
from paceline.core.values.tokens import Tokens
from paceline.errors import InvalidInput
from paceline.events import Event
from paceline.store import Campaign, Lease, ProcessId, SpendRow, Store, StoredEvent, StoredSlot, Unit, UnitSpec
from paceline.testing.store_steps import NOW, add, claim, ended, names, record, specs, stored

LEASE = Lease(token=7, ttl=60.0, expires_at=NOW + 60.0, key="mine")
LEASED = StoredSlot(
    id="one",
    scopes=("runs", "anthropic", "anthropic/max-1"),
    priority=2,
    session="s1",
    parent="session:s1",
    since=NOW - 5.0,
    granted_at=NOW,
    lease=LEASE,
)
WAITING = StoredSlot(
    id="two \u00e9\u4e2d'",
    scopes=("sessions",),
    waiting=Deferred("outside:two", "limit", "sessions", "sessions at its limit (1/1)", NOW + 1.0, 1),
    holder=ProcessId(42, 123456789, "4c1f"),
)
SPENT = SpendRow(
    day="2026-11-16",
    key="team-a",
    account="work",
    model="opus-4-6",
    requests=2,
    tokens=Tokens(input=10, output=20, cache_read=30, cache_write=40),
    billed=0.25,
    imputed=0.5,
    unpriced=1,
    estimated=1,
)

replace = msgspec.structs.replace


class EngineContract:
    """The engine's part of `StoreContract`."""

    def test_verbs_may_be_put_together(self, store: Store) -> None:
        with store.together():
            store.append_events([Event("engine.leading", NOW)])
            store.save_state("governor", b"1")
            assert store.load_state("governor") == b"1"

        assert (len(store.events()), store.load_state("governor")) == (1, b"1")

    def test_verbs_that_are_put_together_are_undone_together(self, store: Store) -> None:
        add(store, specs("a", "b", "c"))
        store.append_events([Event("engine.leading", NOW)])
        (unit,) = claim(store)
        store.save_slots([LEASED], [])
        store.lead("one", until=NOW + 10.0, now=NOW)
        before = _everything(store)

        with pytest.raises(OSError, match="the disk is gone"):
            _change_and_fail(store, unit)

        assert _everything(store) == before
        assert record(store, [ended(unit, "succeeded")]) == [True]
        assert names(claim(store, 5)) == ["b", "c"]
        assert store.append_events([Event("unit.done", NOW, unit=unit.id)]) == 2

    def test_an_outcome_and_its_event_are_stored_in_one_step(self, store: Store) -> None:
        add(store, specs("a"))
        (unit,) = claim(store)
        event = Event("unit.done", NOW, unit=unit.id)

        with store.together():
            assert record(store, [ended(unit, "succeeded")]) == [True]
            assert store.append_events([event]) == 1

        assert (store.counts()["night"].done, store.events()) == (1, [StoredEvent(1, event)])

    def test_a_block_in_a_block_belongs_to_it(self, store: Store) -> None:
        def change_and_fail() -> None:
            with store.together():
                with store.together():
                    store.save_state("governor", b"1")
                store.save_state("why", b"2")
                raise OSError("the disk is gone")

        with pytest.raises(OSError, match="the disk is gone"):
            change_and_fail()

        assert (store.load_state("governor"), store.load_state("why")) == (None, None)
        store.save_state("why", b"3")
        assert store.load_state("why") == b"3"

    def test_a_backoff_keeps_its_length_when_the_clock_is_set_back(self, store: Store) -> None:
        add(store, specs("a", "b", "c"))
        parked, refused, cancelled = claim(store, 3)
        record(store, [ended(parked, "parked", resume_at=NOW + 900.0), ended(refused, "refused")])
        record(store, [ended(cancelled, "cancelled")])

        assert [store.shorten_backoffs(now=NOW + later) for later in (10.0, 15.0, -3600.0, -3600.0)] == [0, 0, 1, 0]

        assert stored(store, "night/a").resume_at == NOW + 900.0
        assert (stored(store, "night/b").resume_at, store.next_resume_at()) == (NOW - 3580.0, NOW - 3580.0)
        assert [store.wake_units(now=NOW - 3580.0), names(claim(store, 3))] == [1, ["b"]]

    def test_what_calls_cost_is_summed_by_day_key_account_and_model(self, store: Store) -> None:
        others = [replace(SPENT, day="2026-11-15"), replace(SPENT, key=""), replace(SPENT, model="\u00e9\x00'%s?")]
        more = replace(SPENT, requests=1, tokens=Tokens(input=1), billed=0.5, imputed=0.0, unpriced=0, estimated=0)

        store.add_spend([SPENT, *others, more])
        store.add_spend([more])
        store.add_spend([])

        total = replace(
            SPENT, requests=4, tokens=Tokens(input=12, output=20, cache_read=30, cache_write=40), billed=1.25
        )
        assert store.spend() == [others[0], others[1], total, others[2]]
        assert store.spend(since="2026-11-16") == [others[1], total, others[2]]
        assert store.spend(since="2026-11-16", key="team-a") == [total, others[2]]
        assert store.spend(key="") == [others[1]]
        assert store.spend(since="2026-11-17") == []

    def test_a_model_name_that_is_no_unicode_can_be_counted(self, store: Store) -> None:
        store.add_spend([replace(SPENT, model="half \ud800")])

        assert store.spend() == [replace(SPENT, model="half ?")]

    def test_events_come_with_what_is_added(self, store: Store) -> None:
        event = Event("control.campaigns", NOW)

        store.add_campaign(Campaign(name="night"), [UnitSpec(id="a")], update=False, now=NOW, events=[event])

        assert store.events() == [StoredEvent(1, event)]

    def test_events_come_back_in_order_from_any_place(self, store: Store) -> None:
        first = Event("scope.paused", NOW, scope="anthropic", fields={"until": 9.0, "cause": None})
        second = Event("unit.done", NOW, unit="night/a")
        third = Event("unit.done", NOW, unit="night/b")

        assert (store.append_events([]), store.append_events([first, second])) == (0, 2)
        assert store.append_events([third]) == 3

        assert store.events() == [StoredEvent(1, first), StoredEvent(2, second), StoredEvent(3, third)]
        assert store.events(after=1, limit=1) == [StoredEvent(2, second)]
        assert store.events(unit="night/b") == [StoredEvent(3, third)]

    def test_ids_of_trimmed_events_are_not_used_again(self, store: Store) -> None:
        event = Event("scope.resumed", NOW, scope="anthropic")
        store.append_events([event] * 5)

        store.trim_events(keep=2)
        assert [each.id for each in store.events()] == [4, 5]
        store.trim_events(keep=0)

        assert (store.events(), store.append_events([event])) == ([], 6)

    def test_slots_of_programs_do_not_push_out_the_history_of_units(self, store: Store) -> None:
        done = Event("unit.done", NOW, unit="night/a")
        traffic = [Event("slot.granted", NOW, scope="openai"), Event("control.slot_release", NOW)]
        store.append_events([done, *traffic, done, *traffic, *traffic])

        store.trim_events(keep=2, keep_slots=3)

        kept = [StoredEvent(1, done), StoredEvent(4, done)]
        assert store.events() == [
            *kept,
            StoredEvent(6, traffic[1]),
            StoredEvent(7, traffic[0]),
            StoredEvent(8, traffic[1]),
        ]
        store.trim_events(keep=1, keep_slots=0)
        assert store.events() == [StoredEvent(4, done)]

    def test_old_events_are_deleted_in_steps_from_the_oldest_on(self, store: Store) -> None:
        store.append_events([Event("scope.resumed", NOW + number, scope="anthropic") for number in range(10)])

        deleted = [store.prune_events(before=NOW + 7.0, through=6, limit=4) for _ in range(3)]

        assert (deleted, [each.id for each in store.events()]) == ([4, 2, 0], [7, 8, 9, 10])
        assert store.prune_events(before=NOW + 7.0, through=10, limit=4) == 1
        assert ([each.id for each in store.events()], store.append_events([])) == ([8, 9, 10], 10)

    def test_slots_are_kept_whole_in_the_order_they_came(self, store: Store) -> None:
        store.save_slots([WAITING, LEASED], [])
        renewed = replace(LEASED, lease=replace(LEASE, expires_at=NOW + 90.0))

        store.save_slots([renewed, replace(LEASED, id="three")], [])

        assert store.slots() == [WAITING, renewed, replace(LEASED, id="three")]
        assert (store.slot("one"), store.slot(WAITING.id), store.slot("four")) == (renewed, WAITING, None)

    def test_slots_come_and_go_in_one_step(self, store: Store) -> None:
        store.save_slots([LEASED, WAITING], [])

        store.save_slots([replace(LEASED, id="three")], ["one", "never there"])
        store.save_slots([LEASED], [LEASED.id])

        assert store.slots() == [WAITING, replace(LEASED, id="three")]

    def test_a_slot_that_cannot_be_stored_leaves_all_as_it_was(self, store: Store) -> None:
        store.save_slots([LEASED], [])

        with pytest.raises(InvalidInput):
            store.save_slots([WAITING, replace(LEASED, session="half \ud800")], [LEASED.id])

        assert store.slots() == [LEASED]

    def test_states_are_replaced(self, store: Store) -> None:
        store.save_state("governor", b"\x00one")
        store.save_state("governor", b"\xfftwo")

        assert (store.load_state("governor"), store.load_state("other")) == (b"\xfftwo", None)

    def test_one_engine_leads(self, store: Store) -> None:
        assert (store.leader(), store.lease_left(now=NOW)) == (None, None)
        assert store.lead("one", until=NOW + 900.0, now=NOW)
        assert not store.lead("two", until=NOW + 900.0, now=NOW)
        assert store.lead("one", until=NOW + 900.0, now=NOW)
        store.resign("two")
        assert not store.lead("two", until=NOW + 900.0, now=NOW)
        assert store.leader() == "one"
        left = store.lease_left(now=NOW)
        assert left is not None
        assert 600.0 < left <= 900.0
        store.resign("one")
        assert (store.leader(), store.lease_left(now=NOW)) == (None, None)
        assert store.lead("two", until=NOW + 900.0, now=NOW)

    def test_a_lease_that_has_run_out_is_nobodys(self, store: Store) -> None:
        assert store.lead("one", until=NOW, now=NOW)
        left = store.lease_left(now=NOW)

        assert left is not None
        assert left <= 0.0
        assert store.lead("two", until=NOW + 900.0, now=NOW)
        assert store.leader() == "two"

    def test_a_whole_store_passes_its_check(self, store: Store) -> None:
        add(store, specs("a"))

        store.check()

    def test_closing_twice_is_harmless(self, store: Store) -> None:
        store.close()
        store.close()


def _change_and_fail(store: Store, unit: Unit) -> None:
    with store.together():
        store.append_events([Event("unit.done", NOW, unit=unit.id)])
        record(store, [ended(unit, "succeeded")])
        add(store, specs("d"))
        add(store, specs("a"), "day")
        store.set_campaign(Campaign(name="night", priority=7))
        claim(store, 2)
        store.cancel_units("night", now=NOW)
        store.trim_events(keep=0)
        store.prune_events(before=NOW + 1.0, through=9, limit=9)
        store.append_events([Event("engine.stopped", NOW)])
        store.save_slots([WAITING], [LEASED.id])
        store.save_state("governor", b"1")
        store.add_spend([SPENT])
        store.resign("one")
        store.lead("two", until=NOW + 10.0, now=NOW)
        store.delete_campaign("day")
        raise OSError("the disk is gone")


def _everything(store: Store) -> tuple[object, ...]:
    units = [store.unit(unit.id) for unit in store.units().units]
    work = (store.campaigns(), store.counts(), store.claimable(), units)
    return *work, store.events(), store.slots(), store.load_state("governor"), store.spend()
