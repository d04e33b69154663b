"""The contract of a store as a test suite. It needs pytest, so nothing else of the kit imports it.

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self) -> Iterator[Store]:
            store = MyStore(...)
            yield store
            store.close()

Whole values are compared, so that every field is checked. Here: campaigns and units. The other parts of the contract
(`store_contract_*`: what the engine keeps for itself, what becomes of units, and their results) are inherited.
"""

from collections.abc import Iterable, Iterator

import msgspec
import pytest

from paceline.core.unit_lifecycle import Counters, Ending, Transition
from paceline.errors import IllegalStep, InvalidInput, UnknownName
from paceline.events import Event
from paceline.store import Added, Campaign, Page, Store, Unit, UnitCounts, UnitSpec
from paceline.testing.store_contract_engine import EngineContract
from paceline.testing.store_contract_results import ResultContract
from paceline.testing.store_contract_units import UnitContract
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

EVERY_CHARACTER_CLASS = "plain\x00NUL \u00e9\u4e2d\U0001f680\u202e\ufeff\n\r\n'\"%s?"

replace = msgspec.structs.replace


class StoreContract(EngineContract, ResultContract, UnitContract):
    """The suite. Inherit from it, and add a fixture `store` that returns an empty store."""

    # -- campaigns ----------------------------------------------------------------------------------

    def test_added_units_are_kept_in_plan_order(self, store: Store) -> None:
        first, second = UnitSpec(id="b", prompt="x", cwd="services/b", output="out/b.md"), UnitSpec(id="a/1")

        added = add(store, [first, second])

        assert added == Added(added=2)
        assert store.unit("night/b") == Unit(id="night/b", campaign="night", spec=first, position=0)
        assert store.unit("night/a/1") == Unit(id="night/a/1", campaign="night", spec=second, position=1)
        assert store.unit("night/c") is store.unit("day/b") is store.unit("night") is None

    def test_adding_again_adds_only_what_is_new(self, store: Store) -> None:
        add(store, specs("a", "b"))

        added = add(store, [*specs("c", "a"), UnitSpec(id="b", prompt="other")])

        assert added == Added(added=1, unchanged=1, changed=("night/b",))
        assert [(unit.spec, unit.position) for unit in map(stored, [store] * 3, ["night/a", "night/b", "night/c"])] == [
            (spec, position) for position, spec in enumerate(specs("a", "b", "c"))
        ]

    def test_an_update_leaves_what_runs_or_is_done(self, store: Store) -> None:
        add(store, specs("done", "running", "todo"))
        record(store, [ended(claim(store)[0], "succeeded")])
        claim(store)
        changed = [UnitSpec(id=name, prompt="new", cwd="there") for name in ("done", "running", "todo")]

        added = add(store, changed, update=True)

        assert added == Added(changed=("night/done", "night/running"), updated=("night/todo",))
        assert stored(store, "night/todo").spec == changed[2]
        assert stored(store, "night/done").spec == specs("done")[0]

    def test_adding_again_replaces_settings_and_keeps_state_and_age(self, store: Store) -> None:
        add(store)
        store.set_campaign(replace(store.campaigns()[0], state="paused"))

        store.add_campaign(Campaign(name="night", priority=5, accounts=("max-1",)), (), update=False, now=NOW + 5.0)

        assert store.campaigns() == [
            Campaign(name="night", priority=5, accounts=("max-1",), state="paused", created_at=NOW)
        ]

    @pytest.mark.parametrize(
        ("campaign", "units"),
        [
            ("", specs("a")),
            ("night/1", specs("a")),
            ("night\ud800", specs("a")),
            ("night", specs("a", "b", "a")),
            ("night", specs("a", "")),
            ("night", [*specs("a"), UnitSpec(id="b", prompt="half \ud800")]),
        ],
    )
    def test_what_cannot_be_stored_is_refused_whole(self, store: Store, campaign: str, units: list[UnitSpec]) -> None:
        with pytest.raises(InvalidInput):
            add(store, units, campaign)

        assert (store.campaigns(), store.units()) == ([], Page(units=()))

    def test_a_plan_that_breaks_off_leaves_nothing(self, store: Store) -> None:
        def broken_plan() -> Iterable[UnitSpec]:
            yield from specs(*(f"u{number}" for number in range(2_000)))
            raise OSError("the plan file is gone")

        with pytest.raises(OSError, match="the plan file is gone"):
            add(store, broken_plan())

        assert (store.campaigns(), store.units()) == ([], Page(units=()))

    def test_what_is_added_in_steps_is_there_with_the_last_one(self, store: Store) -> None:
        add(store, specs("a"))
        before = (store.campaigns(), store.counts(), store.claimable(), store.units())
        units = specs(*(f"u{number}" for number in range(700)))
        steps = store.add_campaign_in_steps(Campaign(name="night", priority=5), units, update=False, now=NOW)
        added: list[Added] = []

        def to_the_end() -> Iterator[None]:
            added.append((yield from steps))

        seen = [(store.campaigns(), store.counts(), store.claimable(), store.units()) for _ in to_the_end()]

        assert seen == [before] * len(seen)
        assert seen
        assert added == [Added(added=700)]
        assert (store.campaigns()[0].priority, store.counts()) == (5, {"night": UnitCounts(todo=701)})
        assert names(store.units(limit=1_000).units) == names(claim(store, 701)) == ["a", *(unit.id for unit in units)]

    def test_steps_that_are_given_up_leave_nothing(self, store: Store) -> None:
        steps = store.add_campaign_in_steps(
            Campaign(name="night"), specs(*(f"u{number}" for number in range(700))), update=False, now=NOW
        )
        next(steps)

        steps.close()

        assert (store.campaigns(), store.counts(), store.units()) == ([], {}, Page(units=()))
        assert add(store, specs("u1", "a")) == Added(added=2)
        assert names(store.units().units) == ["u1", "a"]

    def test_any_text_survives(self, store: Store) -> None:
        spec = UnitSpec(
            id=EVERY_CHARACTER_CLASS,
            prompt=EVERY_CHARACTER_CLASS * 31_000,
            cwd=EVERY_CHARACTER_CLASS,
            output=EVERY_CHARACTER_CLASS,
        )
        assert len(spec.prompt.encode()) > 1_000_000
        add(store, [spec])

        (unit,) = claim(store)

        assert unit.spec == spec
        assert store.unit(f"night/{EVERY_CHARACTER_CLASS}") == unit

    def test_a_deleted_campaign_is_gone_and_may_come_back_new(self, store: Store) -> None:
        add(store, specs("z"), "day")
        add(store, specs("a", "b"))
        record(store, [ended(claim(store)[0], "parked", resume_at=NOW + 1.0)])

        cursor = store.units(limit=2).cursor

        store.delete_campaign("night")

        assert store.counts() == {"day": UnitCounts(todo=1)}
        assert (store.unit("night/a"), store.next_resume_at()) == (None, None)
        add(store, specs("a"))
        assert store.wake_units(now=NOW + 100.0) == 0
        assert names(store.units(cursor=cursor).units) == ["a"]
        assert [campaign.name for campaign in store.campaigns()] == ["day", "night"]
        assert stored(store, "night/a") == Unit(id="night/a", campaign="night", spec=specs("a")[0], position=0)

    def test_a_campaign_that_runs_is_not_deleted(self, store: Store) -> None:
        add(store, specs("a"))
        claim(store)

        with pytest.raises(IllegalStep):
            store.delete_campaign("night")

        assert store.counts() == {"night": UnitCounts(running=1)}

    def test_unknown_names_are_refused(self, store: Store) -> None:
        add(store)
        for verb in (
            lambda: store.set_campaign(Campaign(name="dusk")),
            lambda: store.delete_campaign("dusk"),
            lambda: store.retry_units("dusk"),
            lambda: store.cancel_units("dusk", now=NOW),
            lambda: store.units(campaign="dusk"),
            lambda: store.forget_conversation("night/a"),
        ):
            with pytest.raises(UnknownName):
                verb()

    # -- claims -------------------------------------------------------------------------------------

    def test_a_claim_makes_units_run_in_plan_order(self, store: Store) -> None:
        add(store, specs("b", "a", "c"))

        units = claim(store, 2)

        assert names(units) == ["b", "a"]
        assert units[0] == Unit(
            id="night/b",
            campaign="night",
            spec=specs("b")[0],
            position=0,
            state="running",
            counters=Counters(attempts=1),
            account="max-1",
            attempt_id="attempt-0",
            fence=1,
            lease_until=LEASE_UNTIL,
            started_at=NOW,
            begun_at=NOW,
            phase="working",
        )
        assert [stored(store, unit.id) for unit in units] == units
        assert store.running_units() == [without_prompt(unit) for unit in units]
        assert store.counts() == {"night": UnitCounts(todo=1, running=2)}

    def test_a_claim_takes_what_there_is(self, store: Store) -> None:
        add(store, specs("a"))

        assert (names(claim(store, 5)), claim(store, 5), claim(store, 1, campaign="dusk")) == (["a"], [], [])

    def test_a_claim_needs_a_name_for_each_attempt(self, store: Store) -> None:
        add(store, specs("a", "b"))

        for limit in (2, -1):
            with pytest.raises(InvalidInput):
                store.claim_units("night", "max-1", limit, attempt_ids=["one"], lease_until=LEASE_UNTIL, now=NOW)

        assert store.running_units() == []

    def test_a_conversation_goes_first_on_its_account_and_nowhere_else(self, store: Store) -> None:
        add(store, specs("a", "b", "c"))
        first, second, _ = claim(store, 3)
        record(store, [ended(second, "lost", conversation_id="talk")])
        record(store, [ended(first, "lost")])

        assert store.claimable() == {("night", "max-1"): 1, ("night", None): 1}
        assert names(claim(store, 3, account="max-2")) == ["a"]
        assert [(unit.spec.id, unit.conversation_id) for unit in claim(store, 3)] == [("b", "talk")]

    def test_conversations_go_before_earlier_units(self, store: Store) -> None:
        add(store, specs("a", "b", "c"))
        first, second, third = claim(store, 3)
        record(
            store,
            [
                ended(first, "lost"),
                ended(second, "lost", conversation_id="2"),
                ended(third, "lost", conversation_id="3"),
            ],
        )

        assert names(claim(store, 3)) == ["b", "c", "a"]

    def test_a_forgotten_conversation_may_go_anywhere(self, store: Store) -> None:
        add(store, specs("a"))
        record(store, [ended(claim(store)[0], "lost", conversation_id="talk")])

        store.forget_conversation("night/a")

        assert store.claimable() == {("night", None): 1}
        assert [(unit.spec.id, unit.conversation_id) for unit in claim(store, account="max-2")] == [("a", None)]

    # -- outcomes -----------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("ending", "counts"),
        [
            ("succeeded", UnitCounts(done=1)),
            ("failed", UnitCounts(quarantined=1)),
            ("parked", UnitCounts(todo=1, parked=1)),
            ("refused", UnitCounts(todo=1)),
            ("lost", UnitCounts(todo=1)),
            ("cancelled", UnitCounts(cancelled=1)),
        ],
    )
    def test_an_outcome_is_stored_whole(self, store: Store, ending: Ending, counts: UnitCounts) -> None:
        add(store, specs("a"))
        (unit,) = claim(store)
        how = ended(unit, ending, resume_at=NOW + 99.0 if ending == "parked" else None, conversation_id="talk")

        assert record(store, [how]) == [True]

        assert stored(store, unit.id) == replace(
            unit,
            state=how.transition.state,
            counters=how.transition.counters,
            resume_at=how.transition.resume_at,
            reason=how.transition.reason,
            conversation_id="talk",
            lease_until=None,
            ended_at=NOW + 10.0,
            exit_code=1,
            is_parked=ending == "parked",
            phase=None,
        )
        assert store.counts() == {"night": counts}

    def test_the_next_attempt_shows_nothing_of_the_last(self, store: Store) -> None:
        add(store, specs("a"))
        (first,) = claim(store)
        record(store, [ended(first, "lost")])

        (second,) = claim(store)

        assert second == replace(first, fence=2, counters=Counters(attempts=2, losses=1))

    def test_a_stale_fence_changes_nothing(self, store: Store) -> None:
        add(store, specs("a", "b"))
        first, other = claim(store, 2)
        record(store, [ended(first, "lost")])
        (second,) = claim(store)

        late = [ended(first, "succeeded"), ended(other, "succeeded"), replace(ended(other, "lost"), unit_id="night/x")]

        assert record(store, late) == [False, True, False]
        assert store.renew_units({first.id: first.fence, second.id: 9, "x/y": 1}, lease_until=1e9) == [second.id, "x/y"]
        assert stored(store, "night/a") == second

    def test_recording_again_is_harmless(self, store: Store) -> None:
        add(store, specs("a"))
        (unit,) = claim(store)
        how = ended(unit, "parked", resume_at=NOW + 99.0)
        record(store, [how])
        before = store.unit(unit.id)

        assert record(store, [how, ended(unit, "lost"), ended(unit, "succeeded")]) == [True, False, False]

        assert store.unit(unit.id) == before

    def test_a_step_that_does_not_exist_stores_nothing_of_its_batch(self, store: Store) -> None:
        add(store, specs("a", "b"))
        first, second = claim(store, 2)
        wrong = Transition(step="retry", state="todo", ending="failed", counters=Counters(), reason="")

        with pytest.raises(IllegalStep):
            record(store, [ended(first, "succeeded"), replace(ended(second, "lost"), transition=wrong)])

        assert store.counts() == {"night": UnitCounts(running=2)}

    def test_only_a_unit_that_goes_on_has_a_time_to_resume(self, store: Store) -> None:
        add(store, specs("a"))
        how = ended(claim(store)[0], "succeeded")

        record(store, [replace(how, transition=replace(how.transition, resume_at=NOW))])

        assert (stored(store, "night/a").resume_at, store.counts()) == (None, {"night": UnitCounts(done=1)})

    def test_half_characters_from_an_agent_do_not_lose_its_outcome(self, store: Store) -> None:
        add(store, specs("a"))
        how = ended(claim(store)[0], "lost", conversation_id="talk")

        record(store, [replace(how, transition=replace(how.transition, reason="said \ud83d"))])
        store.append_events([Event("unit.requeued", NOW, unit="night/a", fields={"detail": ["\ud83d"]})])

        assert stored(store, "night/a").reason == "said ?"
        assert store.events()[0].event.fields == {"detail": ["?"]}

    def test_renewing_extends_the_lease(self, store: Store) -> None:
        add(store, specs("a"))
        (unit,) = claim(store)

        assert store.renew_units({unit.id: unit.fence}, lease_until=LEASE_UNTIL + 60.0) == []

        assert store.unit(unit.id) == replace(unit, lease_until=LEASE_UNTIL + 60.0)

    # -- parking ------------------------------------------------------------------------------------

    def test_parked_units_are_claimed_only_once_woken(self, store: Store) -> None:
        add(store, specs("a", "b", "c"))
        first, second, third = claim(store, 3)
        record(store, [ended(first, "parked", resume_at=NOW + 30.0), ended(second, "parked", resume_at=NOW + 20.0)])
        record(store, [ended(third, "parked", resume_at=NOW + 40.0)])

        assert (store.next_resume_at(), store.wake_units(now=NOW + 19.0), claim(store)) == (NOW + 20.0, 0, [])
        assert store.wake_units(now=NOW + 30.0) == 2
        assert store.counts() == {"night": UnitCounts(todo=3, parked=1)}
        assert store.claimable() == {("night", None): 2}
        assert names(claim(store, 3)) == ["a", "b"]
        assert store.next_resume_at() == NOW + 40.0

    def test_waking_goes_by_time_and_no_further_than_its_limit(self, store: Store) -> None:
        add(store, specs("a", "b", "c"))
        late, early, middle = claim(store, 3)
        for unit, resume_at in ((late, 30.0), (early, 10.0), (middle, 20.0)):
            record(store, [ended(unit, "parked", resume_at=NOW + resume_at)])

        assert [store.wake_units(now=NOW + 99.0, limit=2), names(claim(store, 3))] == [2, ["b", "c"]]
        assert [store.wake_units(now=NOW + 99.0, limit=2), names(claim(store, 3))] == [1, ["a"]]

    def test_a_window_that_reopens_wakes_the_units_parked_on_its_account(self, store: Store) -> None:
        add(store, specs("a", "b", "c"))
        first, second = claim(store, 2, account="max-1")
        (third,) = claim(store, 1, account="max-2")
        record(store, [ended(unit, "parked", resume_at=NOW + 900.0) for unit in (first, second, third)])

        woken = [
            store.wake_units(account="max-1", limit=1),
            store.wake_units(account="max-1"),
            store.wake_units(account="max-1"),
        ]
        assert woken == [1, 1, 0]
        assert store.counts() == {"night": UnitCounts(todo=3, parked=1)}
        assert names(claim(store, 3)) == ["a", "b"]

    # -- reading ------------------------------------------------------------------------------------

    def test_pages_go_through_all_units_once(self, store: Store) -> None:
        add(store, specs("a", "b", "c"))
        add(store, specs("z"), "day")
        add(store, specs("d"))

        first = store.units(limit=3)
        second = store.units(limit=3, cursor=first.cursor)

        assert names(first.units + second.units) == ["a", "b", "c", "d", "z"]
        assert second.cursor is None
        assert first.units[0] == without_prompt(stored(store, "night/a"))

    def test_pages_of_a_campaign_and_a_state(self, store: Store) -> None:
        add(store, specs("z"), "day")
        add(store, specs("a", "b", "c", "d"))
        record(store, [ended(unit, "succeeded") for unit in claim(store, 2)])

        page = store.units(campaign="night", state="todo", limit=1)

        assert names(page.units) == ["c"]
        assert names(store.units(campaign="night", state="todo", cursor=page.cursor).units) == ["d"]
        assert names(store.units(state="todo").units) == ["z", "c", "d"]
        assert names(store.units(campaign="night").units) == ["a", "b", "c", "d"]

    def test_bad_pages_are_refused(self, store: Store) -> None:
        for verb in (
            lambda: store.units(limit=0),
            lambda: store.units(cursor="night/a"),
            lambda: store.units(cursor="-1"),
            lambda: store.units(cursor="9" * 30),
            lambda: store.events(limit=0),
            lambda: store.wake_units(now=NOW, limit=0),
        ):
            with pytest.raises(InvalidInput):
                verb()
