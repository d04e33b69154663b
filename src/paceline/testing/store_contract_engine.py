"""The contract of a store for what the engine keeps for itself: events, slots, states, leadership.

It is not used alone: `StoreContract` inherits it.
"""

import msgspec
import pytest

from paceline.core import Deferred
from paceline.errors import InvalidInput
from paceline.events import Event
from paceline.store import Campaign, Lease, ProcessId, Store, StoredEvent, StoredSlot, UnitSpec
from paceline.testing.store_steps import NOW

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

replace = msgspec.structs.replace


class EngineContract:
    """The engine's part of `StoreContract`."""

    def test_verbs_may_be_put_together(self, store: Store) -> None:
        with store.together():
            store.append_events([Event("engine.leading", NOW)])
            store.save_state("governor", b"1")
            assert store.load_state("governor") == b"1"

        assert (len(store.events()), store.load_state("governor")) == (1, b"1")

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
        assert store.lead("one", until=NOW + 10.0, now=NOW)
        assert not store.lead("two", until=NOW + 20.0, now=NOW + 9.0)
        assert store.lead("one", until=NOW + 20.0, now=NOW + 9.0)
        store.resign("two")
        assert not store.lead("two", until=NOW + 30.0, now=NOW + 19.0)
        assert store.lead("two", until=NOW + 30.0, now=NOW + 20.0)
        store.resign("two")
        assert store.lead("one", until=NOW + 40.0, now=NOW + 21.0)

    def test_closing_twice_is_harmless(self, store: Store) -> None:
        store.close()
        store.close()
