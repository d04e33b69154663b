"""A unit's life: every step of the table, every ending of a try, and what is counted when."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.unit_lifecycle import (
    STEPS,
    AttemptOutcome,
    Counters,
    Ending,
    Policy,
    Step,
    Transition,
    UnitState,
    next_state,
    transition_after,
)
from paceline.errors import IllegalStep

NOW = 1_000.0
STATES: tuple[UnitState, ...] = get_args(UnitState)
STEP_NAMES: tuple[Step, ...] = get_args(Step)
ENDINGS: tuple[Ending, ...] = get_args(Ending)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("step", STEP_NAMES)
def test_a_step_leads_where_the_table_says_or_nowhere(state: UnitState, step: Step) -> None:
    if (state, step) in STEPS:
        assert next_state(state, step) == STEPS[state, step]
    else:
        with pytest.raises(IllegalStep, match=f"a unit that is {state} cannot {step}"):
            next_state(state, step)


def test_done_is_done_and_all_other_states_can_be_left() -> None:
    assert [step for state, step in STEPS if state == "done"] == []
    assert {state for state, _ in STEPS} == {"todo", "running", "unverified", "held", "quarantined", "cancelled"}
    assert {state for state, step in STEPS if step == "retry"} == {"held", "quarantined", "unverified", "cancelled"}
    assert {state for state, step in STEPS if step == "accept"} == {"unverified"}
    assert {state for state, step in STEPS if step == "cancel"} == set(STATES) - {"done", "cancelled"}


def settle(ending: Ending, counters: Counters | None = None, **outcome: object) -> Transition:
    what = AttemptOutcome(ending=ending, reason="so it went", **outcome)  # type: ignore[arg-type]
    return transition_after(counters or Counters(attempts=1), what, Policy(), NOW)


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        (
            "succeeded",
            Transition(step="succeed", state="done", ending="succeeded", counters=Counters(attempts=1), reason=""),
        ),
        (
            "cancelled",
            Transition(step="cancel", state="cancelled", ending="cancelled", counters=Counters(attempts=1), reason=""),
        ),
        (
            "failed",
            Transition(
                step="requeue",
                state="todo",
                ending="failed",
                counters=Counters(failures=1, attempts=1),
                reason="",
                resume_at=NOW + 5.0,
            ),
        ),
        (
            "parked",
            Transition(
                step="requeue", state="todo", ending="parked", counters=Counters(attempts=1, parks=1), reason=""
            ),
        ),
        (
            "lost",
            Transition(step="requeue", state="todo", ending="lost", counters=Counters(attempts=1, losses=1), reason=""),
        ),
        (
            "refused",
            Transition(
                step="requeue",
                state="todo",
                ending="refused",
                counters=Counters(attempts=1, refusals=1),
                reason="",
                resume_at=NOW + 30.0,
            ),
        ),
        (
            "try_later",
            Transition(
                step="requeue",
                state="todo",
                ending="try_later",
                counters=Counters(attempts=1, refusals=1),
                reason="",
                resume_at=NOW + 60.0,
            ),
        ),
        (
            "check_failed",
            Transition(step="requeue", state="todo", ending="check_failed", counters=Counters(attempts=1), reason=""),
        ),
        (
            "unverified",
            Transition(
                step="fail_check", state="unverified", ending="unverified", counters=Counters(attempts=1), reason=""
            ),
        ),
        (
            "account_stopped",
            Transition(
                step="requeue", state="todo", ending="account_stopped", counters=Counters(attempts=1), reason=""
            ),
        ),
        (
            "unreachable",
            Transition(step="requeue", state="todo", ending="unreachable", counters=Counters(attempts=1), reason=""),
        ),
    ],
)
def test_every_first_ending(ending: Ending, expected: Transition) -> None:
    what = AttemptOutcome(ending=ending, reason="")
    assert transition_after(Counters(attempts=1), what, Policy(), NOW) == expected


@pytest.mark.parametrize(
    ("ending", "bound", "state"),
    [
        ("failed", Counters(failures=2), "quarantined"),
        ("lost", Counters(losses=9), "held"),
        ("refused", Counters(refusals=49), "held"),
        ("try_later", Counters(refusals=49), "held"),
    ],
)
def test_nothing_goes_on_for_ever(ending: Ending, bound: Counters, state: UnitState) -> None:
    assert settle(ending, bound).state == state
    assert settle(ending, bound).resume_at is None


def test_only_fresh_windows_spent_alone_are_counted_against_a_unit() -> None:
    assert settle("parked", Counters(parks=1_000)).state == "todo"
    assert settle("parked", Counters(parks=4, windows_spent=4)).state == "todo"
    held = settle("parked", Counters(parks=4, windows_spent=4), opened_window=True)
    assert (held.state, held.reason) == ("held", "has spent 5 fresh windows by itself: so it went")


def test_the_longer_of_backoff_and_stated_wait_counts() -> None:
    assert settle("refused", resume_at=NOW + 5.0).resume_at == NOW + 30.0
    assert settle("refused", resume_at=NOW + 500.0).resume_at == NOW + 500.0
    assert [settle("refused", Counters(refusals=n)).resume_at for n in range(7)] == [
        NOW + wait for wait in (30.0, 60.0, 120.0, 300.0, 600.0, 600.0, 600.0)
    ]


def test_what_is_lost_again_and_again_waits_longer_and_longer() -> None:
    assert [settle("lost", Counters(losses=n)).resume_at for n in range(6)] == [
        None,
        *(NOW + wait for wait in (5.0, 30.0, 120.0, 600.0, 600.0)),
    ]


@given(
    endings=st.lists(st.sampled_from(ENDINGS), max_size=200),
    fresh=st.booleans(),
)
def test_only_failures_are_charged_and_every_life_ends_or_waits_with_a_reason(
    endings: list[Ending], fresh: bool
) -> None:
    counters = Counters()
    for ending in endings:
        outcome = AttemptOutcome(ending=ending, reason=f"it {ending}", opened_window=fresh)
        transition = transition_after(counters, outcome, Policy(), NOW)

        assert transition.state == next_state("running", transition.step)
        assert transition.counters.failures - counters.failures == (ending == "failed")
        assert outcome.reason in transition.reason
        assert (transition.resume_at is None) or (transition.state == "todo" and transition.resume_at > NOW)
        if transition.state != "todo":
            assert transition.state in {"done", "unverified", "cancelled", "quarantined", "held"}
            return
        counters = transition.counters
    assert counters.failures < 3
    assert counters.losses < 10
    assert counters.refusals < 50
