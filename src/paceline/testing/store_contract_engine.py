"""The part of `StoreContract` for what the engine keeps: events, slots, sums, states, the lead, and keys of clients."""

import msgspec
import pytest

from paceline.core import Deferred
from paceline.core.values.tokens import Tokens
from paceline.errors import IllegalStep, InvalidInput, UnknownName
from paceline.events import Event
from paceline.store import (
    BatchId,
    Campaign,
    ClientKey,
    HashedKey,
    KeyBudget,
    Lease,
    ProcessId,
    SpendRow,
    Store,
    StoredEvent,
    StoredSlot,
    Unit,
    UnitSpec,
)
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
TEAM = ClientKey(
    name="team",
    pool="work",
    models=("opus-4-6", "gpt-5"),
    rpm=60,
    tpm=100_000,
    parallel=4,
    priority_max=3,
    weight=2.5,
    budget=KeyBudget(50.0, "month"),
    created_at=NOW,
)


class EngineContract:
    """The part of `StoreContract` for the records of the engine."""

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

        assert [store.hasten_units({}, set_back_to=NOW + later) for later in (10.0, 15.0, -3600.0, -3600.0)] == [
            0,
            0,
            1,
            0,
        ]

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

    def test_a_batch_of_sums_that_is_repeated_is_added_once(self, store: Store) -> None:
        more = replace(SPENT, requests=1)
        store.add_spend([SPENT], BatchId("one", 1))
        store.add_spend([SPENT], BatchId("one", 1))
        store.add_spend([more], BatchId("two", 1))
        store.add_spend([more], BatchId("one", 2))
        store.add_spend([SPENT], BatchId("one", 1))
        try:
            with store.together():
                store.add_spend([more], BatchId("one", 3))
                raise InvalidInput("undone")
        except InvalidInput:
            store.add_spend([more], BatchId("one", 3))

        assert [row.requests for row in store.spend()] == [2 + 1 + 1 + 1]

    def test_keys_of_one_name_have_sums_of_their_own(self, store: Store) -> None:
        rows = [replace(SPENT, key_created_at=at) for at in (0.0, 1763300000.25, 1763300000.5)]
        store.add_spend([*rows, replace(SPENT, key="team-ab"), replace(SPENT, key="team-a.b", key_created_at=1.0)])
        store.add_spend([rows[1]])

        assert store.spend(key="team-a") == [rows[0], rows[1].plus(rows[1]), rows[2]]

    def test_sums_of_all_models_are_read_at_once(self, store: Store) -> None:
        earlier, other = replace(SPENT, day="2026-11-15"), replace(SPENT, model="sonnet")
        store.add_spend([earlier, SPENT, other])

        assert store.spend(by_model=False) == [replace(earlier, model=""), replace(SPENT.plus(other), model="")]
        assert store.spend(since="2026-11-16", key="nobody", by_model=False) == []

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

    def test_what_campaigns_wait_for_is_kept_with_the_history_of_units_and_without_secrets(self, store: Store) -> None:
        detail = "held: api_key=sk-ant-api03-ABCDEFGH12345678 was refused"
        wait = Event("slot.deferred", NOW, "anthropic/max-1", None, {"campaign": "night", "detail": detail})
        of_program = replace(wait, fields={"detail": detail})
        store.append_events([wait, of_program])

        store.trim_events(keep=1, keep_slots=0)

        kept = replace(wait, fields={"campaign": "night", "detail": "held: api_key=<key> was refused"})
        assert store.events() == [StoredEvent(1, kept)]

    def test_old_events_are_deleted_in_steps_from_the_oldest_on(self, store: Store) -> None:
        store.append_events([Event("scope.resumed", NOW + number, scope="anthropic") for number in range(10)])

        deleted = [store.trim_events(before=NOW + 7.0, through=6, limit=4) for _ in range(3)]

        assert (deleted, [each.id for each in store.events()]) == ([4, 2, 0], [7, 8, 9, 10])
        assert store.trim_events(before=NOW + 7.0, through=10, limit=4) == 1
        assert ([each.id for each in store.events()], store.append_events([])) == ([8, 9, 10], 10)

    def test_slots_are_kept_whole_in_the_order_they_came(self, store: Store) -> None:
        store.save_slots([WAITING, LEASED], [])
        renewed = replace(LEASED, lease=replace(LEASE, expires_at=NOW + 90.0))

        store.save_slots([renewed, replace(LEASED, id="three")], [])

        assert store.slots() == [WAITING, renewed, replace(LEASED, id="three")]
        assert (store.slots("one"), store.slots(WAITING.id), store.slots("four")) == ([renewed], [WAITING], [])

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
        assert store.leader(now=NOW) is None
        assert store.lead("one", until=NOW + 900.0, now=NOW)
        assert not store.lead("two", until=NOW + 900.0, now=NOW)
        assert store.lead("one", until=NOW + 900.0, now=NOW)
        store.resign("two")
        assert not store.lead("two", until=NOW + 900.0, now=NOW)
        lease = store.leader(now=NOW)
        assert lease is not None
        assert lease.owner == "one"
        assert 600.0 < lease.seconds <= 900.0
        store.resign("one")
        assert store.leader(now=NOW) is None
        assert store.lead("two", until=NOW + 900.0, now=NOW)

    def test_a_lease_that_has_run_out_is_nobodys(self, store: Store) -> None:
        assert store.lead("one", until=NOW, now=NOW)
        lease = store.leader(now=NOW)

        assert lease is not None
        assert lease.seconds <= 0.0
        assert store.lead("two", until=NOW + 900.0, now=NOW)
        after = store.leader(now=NOW)
        assert after is not None
        assert after.owner == "two"

    def test_a_whole_store_passes_its_check(self, store: Store) -> None:
        add(store, specs("a"))

        store.check()

    def test_closing_twice_is_harmless(self, store: Store) -> None:
        store.close()
        store.close()

    def test_keys_are_returned_as_they_were_created(self, store: Store) -> None:
        plain = ClientKey(name="a", created_at=NOW)

        store.create_client_key(TEAM, "d1")
        store.create_client_key(plain, "d2")

        assert store.client_keys() == [HashedKey(TEAM, "d1"), HashedKey(plain, "d2")]

    def test_a_name_is_given_once_until_its_key_is_revoked(self, store: Store) -> None:
        store.create_client_key(TEAM, "d1")
        with pytest.raises(IllegalStep, match="there is a key 'team' already; choose another name"):
            store.create_client_key(TEAM, "d2")
        revoked = store.revoke_client_key("team", now=NOW + 5)
        store.create_client_key(TEAM, "d3")

        assert revoked == msgspec.structs.replace(TEAM, revoked_at=NOW + 5)
        assert store.client_keys() == [HashedKey(revoked, "d1"), HashedKey(TEAM, "d3")]

    def test_only_a_key_that_is_there_can_be_revoked(self, store: Store) -> None:
        store.create_client_key(TEAM, "d1")
        store.revoke_client_key("team", now=NOW)
        for name in ("team", "nobody"):
            with pytest.raises(UnknownName, match=f"there is no key '{name}'"):
                store.revoke_client_key(name, now=NOW + 9)

        assert [each.key.revoked_at for each in store.client_keys()] == [NOW]

    def test_a_key_is_stored_with_the_rest_of_its_transaction_or_not_at_all(self, store: Store) -> None:
        store.create_client_key(TEAM, "d1")

        def fail_in_the_middle() -> None:
            with store.together():
                store.create_client_key(ClientKey(name="b"), "d2")
                store.revoke_client_key("team", now=NOW)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail_in_the_middle()

        assert store.client_keys() == [HashedKey(TEAM, "d1")]


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
        store.trim_events(before=NOW + 1.0, through=9, limit=9)
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
