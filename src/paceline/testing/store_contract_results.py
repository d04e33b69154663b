"""The contract of a store for the work of units: what they are at, their results, and those that are unverified.

It is not used alone: `StoreContract` inherits it.
"""

import msgspec

from paceline.core.unit_lifecycle import Counters
from paceline.store import Added, CheckRound, Cost, Store, Tokens, UnitCounts, UnitResult, UnitSpec
from paceline.store.unit_result import SessionEnd
from paceline.testing.store_steps import NOW, add, claim, ended, record, specs, stored, without_prompt

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


class ResultContract:
    """The part of `StoreContract` about the work of units."""

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
