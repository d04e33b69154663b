"""The contract of a store as a test suite. It needs pytest, so nothing else of the kit imports it.

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self) -> Iterator[Store]:
            store = MyStore(...)
            yield store
            store.close()

Whole values are compared, so that every field is checked.
"""

from collections.abc import Iterable, Iterator

import msgspec
import pytest

from paceline.core import Deferred
from paceline.core.unit_lifecycle import Counters, Ending, Transition
from paceline.core.values.session_output import Tokens
from paceline.errors import IllegalStep, InvalidInput, UnknownName
from paceline.events import Event
from paceline.store import (
    Added,
    BatchId,
    Campaign,
    CheckRound,
    ClientKey,
    Cost,
    HashedKey,
    KeyBudget,
    Lease,
    Page,
    ProcessId,
    SpendRow,
    StoppedUnits,
    Store,
    StoredEvent,
    StoredSlot,
    Unit,
    UnitCounts,
    UnitResult,
    UnitSpec,
)
from paceline.store.unit_result import SessionEnd
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
FAILED = CheckRound(exit_code=2, seconds=1.5, tail="2 tests failed\x00 \u00e9")
RESULT = UnitResult(
    agent="claude",
    model="opus-4-6",
    host="box",
    turns=3,
    tokens=Tokens(input=10, output=20, cache_read=30, cache_write=40),
    cost=Cost(imputed=0.25),
    answer="It is done. \U0001f680",
    workspace="/w/a",
    branch="paceline/night/a",
    base="1a2b",
    commit="3c4d",
    repository="/r",
    files_changed=2,
    lines_added=7,
    lines_removed=1,
    checks=(FAILED, CheckRound(exit_code=None, seconds=600.0, tail="", reason="timed out")),
    waited_seconds=5.0,
    ran_seconds=60.0,
    feedback="The check failed.",
)
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


class StoreContract:
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

    # -- what becomes of units ------------------------------------------------------------------------

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

    # -- the work of units ----------------------------------------------------------------------------

    def test_a_result_is_stored_with_its_outcome_and_kept_until_another_comes(self, store: Store) -> None:
        add(store, specs("a", "b"))
        unit, other = claim(store, 2)

        record(store, [replace(ended(unit, "lost"), result=RESULT), ended(other, "lost")])

        assert (stored(store, "night/a").result, stored(store, "night/b").result) == (RESULT, UnitResult())
        again, _ = claim(store, 2)
        assert (again.result, again.phase) == (RESULT, "working")
        record(store, [ended(again, "lost")])
        assert (stored(store, "night/a").result, stored(store, "night/a").phase) == (RESULT, None)

    def test_a_unit_that_starts_over_forgets_its_work_and_keeps_what_it_used(self, store: Store) -> None:
        add(store, specs("a", "b"))
        unit, other = claim(store, 2)
        worked = replace(RESULT, port_base=20_000, deliveries=1, session_end=SessionEnd(account="max-1"))
        record(store, [replace(ended(each, "lost"), result=worked) for each in (unit, other)])

        store.forget_conversation("night/a")

        used = UnitResult(
            agent="claude",
            model="opus-4-6",
            host="box",
            turns=3,
            tokens=RESULT.tokens,
            cost=RESULT.cost,
            waited_seconds=5.0,
            ran_seconds=60.0,
            session_end=SessionEnd(account="max-1"),  # says that the use of the last session is counted
        )
        assert (stored(store, "night/a").result, stored(store, "night/b").result) == (used, worked)

    def test_lists_have_results_without_their_long_texts(self, store: Store) -> None:
        add(store, specs("a", "b"))
        unit, other = claim(store, 2)
        store.save_progress(unit.id, unit.fence, phase="checking", result=RESULT)
        record(store, [replace(ended(other, "succeeded"), result=RESULT)])

        whole = replace(unit, phase="checking", result=RESULT)
        brief = replace(
            RESULT, answer=None, feedback=None, checks=tuple(replace(each, tail=None) for each in RESULT.checks)
        )
        listed = store.units().units
        assert listed[0] == without_prompt(replace(whole, result=brief))
        assert listed[1].result == brief
        assert store.running_units() == [without_prompt(whole)]

    def test_progress_is_stored_only_for_the_attempt_that_runs_and_its_use_when_cancelled(self, store: Store) -> None:
        add(store, specs("a", "b"))
        (unit,) = claim(store)

        assert store.save_progress(unit.id, unit.fence, phase="delivering", result=None)
        assert store.save_progress(unit.id, unit.fence, phase=None, result=RESULT)
        assert stored(store, unit.id) == replace(unit, phase="delivering", result=RESULT)

        late = UnitResult(answer="late")
        stale = [(unit.id, unit.fence + 1), (unit.id, 0), ("night/b", 0), ("night/x", 1), ("x/y", 1)]
        assert [store.save_progress(*each, phase="checking", result=late) for each in stale] == [False] * len(stale)
        assert stored(store, unit.id) == replace(unit, phase="delivering", result=RESULT)

        store.cancel_units("night", now=NOW)
        assert not store.save_progress(unit.id, unit.fence, phase="checking", result=late)
        assert (stored(store, unit.id).phase, stored(store, unit.id).result) == (None, RESULT)

        used = UnitResult(answer="late", turns=7)
        store.forget_conversation(unit.id)
        assert record(store, [replace(ended(unit, "cancelled"), result=used)]) == [True]
        assert stored(store, unit.id).result == UnitResult(turns=7)

    def test_half_characters_from_an_agent_do_not_lose_its_result(self, store: Store) -> None:
        add(store, specs("a"))
        (unit,) = claim(store)
        torn = UnitResult(answer="said \ud83d", checks=(replace(FAILED, tail="\udfff"),), turns=2)

        record(store, [replace(ended(unit, "succeeded"), result=torn)])

        kept = UnitResult(answer="said ?", checks=(replace(FAILED, tail="?"),), turns=2)
        assert stored(store, unit.id).result == kept

    def test_a_failed_check_requeues_at_once_and_charges_nothing(self, store: Store) -> None:
        add(store, specs("a"))
        (unit,) = claim(store)

        record(store, [replace(ended(unit, "check_failed", conversation_id="talk"), result=RESULT)])

        assert store.counts() == {"night": UnitCounts(todo=1)}
        (again,) = claim(store)
        assert (again.counters, again.conversation_id, again.result.feedback) == (
            Counters(attempts=2),
            "talk",
            "The check failed.",
        )

    def test_an_unverified_unit_is_accepted_retried_or_cancelled(self, store: Store) -> None:
        add(store, specs("accepted", "retried", "cancelled", "changed", "waits"))
        units = claim(store, 4)
        record(store, [replace(ended(unit, "unverified", conversation_id="talk"), result=RESULT) for unit in units])
        assert store.counts() == {"night": UnitCounts(todo=1, unverified=4)}
        assert [unit.spec.id for unit in store.units(state="unverified").units] == [unit.spec.id for unit in units]

        named = ["night/accepted", "night/waits", "night/x", "day/retried"]
        accepted = [store.move_units(named, "done", "accepted by a person", now=NOW + later) for later in (20.0, 0.0)]
        assert accepted == [1, 0]
        assert store.retry_units("night", ["night/retried"]) == 1
        assert store.cancel_units("night", ["night/cancelled"], now=NOW) == []
        changed = UnitSpec(id="changed", prompt="better")
        assert add(store, [changed], update=True) == Added(updated=("night/changed",))

        assert store.counts() == {"night": UnitCounts(todo=3, done=1, cancelled=1)}
        assert stored(store, "night/accepted") == replace(
            units[0],
            state="done",
            reason="accepted by a person",
            conversation_id="talk",
            lease_until=None,
            ended_at=NOW + 20.0,
            exit_code=1,
            phase=None,
            result=RESULT,
        )
        without_checks = replace(RESULT, checks=())
        again = replace(
            units[1], state="todo", counters=Counters(attempts=1), conversation_id="talk", lease_until=None, phase=None
        )
        assert stored(store, "night/retried") == replace(again, result=without_checks)
        assert stored(store, "night/changed").result == without_checks
        assert (stored(store, "night/cancelled").state, stored(store, "night/cancelled").result) == (
            "cancelled",
            RESULT,
        )
        assert store.retry_units("night", also_cancelled=True) == 1
        assert stored(store, "night/cancelled").result == without_checks

    def test_a_deleted_campaign_takes_its_results_along(self, store: Store) -> None:
        add(store, specs("a"))
        record(store, [replace(ended(claim(store)[0], "succeeded"), result=RESULT)])

        store.delete_campaign("night")
        add(store, specs("a"))

        assert stored(store, "night/a").result == UnitResult()

    # -- what the engine keeps for itself -------------------------------------------------------------

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
