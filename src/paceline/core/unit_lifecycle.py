"""The life cycle of a unit as one transition table. A step that the table does not have raises and changes nothing.

`docs/units.md` shows the table as a diagram that is made from `STEPS`.

A parked unit is `todo` with `resume_at` and a reason. Only a failure is charged against `max_attempts`: quota, rate
limits, overload, platform limits, restarts and lost hosts are counted on their own, and each count has its own bound.
"""

from typing import Final, Literal

import msgspec

from paceline.errors import IllegalStep

UnitState = Literal["todo", "running", "done", "unverified", "quarantined", "held", "cancelled"]
Step = Literal["claim", "succeed", "requeue", "fail_check", "quarantine", "hold", "retry", "accept", "cancel"]

STEPS: Final[dict[tuple[UnitState, Step], UnitState]] = {
    ("todo", "claim"): "running",
    ("running", "succeed"): "done",
    ("running", "requeue"): "todo",
    ("running", "fail_check"): "unverified",
    ("running", "quarantine"): "quarantined",
    ("running", "hold"): "held",
    ("todo", "hold"): "held",
    ("held", "retry"): "todo",
    ("quarantined", "retry"): "todo",
    ("unverified", "retry"): "todo",
    ("cancelled", "retry"): "todo",
    ("unverified", "accept"): "done",
    ("todo", "cancel"): "cancelled",
    ("running", "cancel"): "cancelled",
    ("held", "cancel"): "cancelled",
    ("quarantined", "cancel"): "cancelled",
    ("unverified", "cancel"): "cancelled",
}


def next_state(state: UnitState, step: Step) -> UnitState:
    """Return the state that the step leads to. Raise `IllegalStep` if the table has no such step."""
    try:
        return STEPS[state, step]
    except KeyError:
        raise IllegalStep(f"a unit that is {state} cannot {step}") from None


class Counters(msgspec.Struct, frozen=True):
    """How often each thing happened to a unit. Only `failures` are charged; `attempts` counts every launch."""

    failures: int = 0
    attempts: int = 0
    parks: int = 0
    windows_spent: int = 0
    refusals: int = 0
    losses: int = 0


class Policy(msgspec.Struct, frozen=True):
    """The bounds after which a unit is quarantined (`max_attempts`) or held (the others)."""

    max_attempts: int = 3
    max_windows_spent: int = 5
    max_refusals: int = 50
    max_losses: int = 10


Ending = Literal[
    "succeeded",
    "failed",
    "parked",
    "refused",
    "lost",
    "try_later",
    "account_stopped",
    "unreachable",
    "not_started",
    "denied",
    "barred",
    "check_failed",
    "unverified",
    "campaign_fault",
    "yielded",
    "cancelled",
]
"""`check_failed`: the check of the work failed, and the agent gets another round. `unverified`: no round is left.
`campaign_fault`: the setup of the campaign cannot do its work, so the agent never started.
`yielded`: the engine ended it where it can continue, or before it began."""

REFUSED_SECONDS = (30.0, 60.0, 120.0, 300.0, 600.0)
"""Pauses after the first, second, ... refusal: the first is the usual pause of a scope after a 429."""
FAILED_SECONDS = (5.0, 30.0, 120.0, 600.0)
"""Pauses after the first, second, ... failure: short at first, because the provider did not refuse anything. The same
after the second, third, ... loss. There is none after the first loss."""
TRY_LATER_SECONDS = REFUSED_SECONDS[1:]
"""Pauses after exit code 75. The command asked for time, so the first is already a minute."""


class AttemptOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt ended. `resume_at` is set for a park, and for a refusal that named its wait."""

    ending: Ending
    reason: str
    resume_at: float | None = None
    exit_code: int | None = None
    opened_window: bool = False
    denials: int = 0
    """Tool calls that the agent was not allowed to make."""
    warnings: tuple[str, ...] = ()


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """The step that follows from an outcome, and the state and counters of the unit after it."""

    step: Step
    state: UnitState
    ending: Ending
    counters: Counters
    reason: str
    resume_at: float | None = None
    exit_code: int | None = None


PLAIN_STEPS: Final[dict[Ending, Step]] = {
    "succeeded": "succeed",
    "cancelled": "cancel",
    "account_stopped": "requeue",  # its scope waits, so the unit need not
    "unreachable": "requeue",
    "not_started": "requeue",
    "yielded": "requeue",  # nothing went wrong
    "check_failed": "requeue",  # the agent continues at once, with the output of the check
    "campaign_fault": "requeue",
    "unverified": "fail_check",
    "denied": "hold",  # a person must change a setting first
    "barred": "hold",
}
"""The steps after endings that are not counted."""


def transition_after(counters: Counters, outcome: AttemptOutcome, policy: Policy, now: float) -> Transition:
    """Return what becomes of a running unit whose attempt ended with this outcome."""
    match outcome.ending:
        case "failed":
            return _after_failure(counters, outcome, policy, now)
        case "parked":
            return _after_park(counters, outcome, policy)
        case "lost":
            return _after_loss(counters, outcome, policy, now)
        case "refused" | "try_later":
            return _after_refusal(counters, outcome, policy, now)
    return _transition(PLAIN_STEPS[outcome.ending], counters, outcome)


def _after_failure(counters: Counters, outcome: AttemptOutcome, policy: Policy, now: float) -> Transition:
    counters = msgspec.structs.replace(counters, failures=counters.failures + 1, refusals=0)
    if counters.failures >= policy.max_attempts:
        return _transition("quarantine", counters, outcome)
    return _transition("requeue", counters, outcome, resume_at=now + _backoff(FAILED_SECONDS, counters.failures))


def _after_park(counters: Counters, outcome: AttemptOutcome, policy: Policy) -> Transition:
    """Park the unit, but hold it once it has spent too many fresh windows by itself: it would park forever."""
    spent = counters.windows_spent + 1 if outcome.opened_window else counters.windows_spent
    counters = msgspec.structs.replace(counters, parks=counters.parks + 1, windows_spent=spent)
    if spent >= policy.max_windows_spent:
        return _transition("hold", counters, outcome, f"has spent {spent} fresh windows by itself: {outcome.reason}")
    return _transition("requeue", counters, outcome)


def _after_loss(counters: Counters, outcome: AttemptOutcome, policy: Policy, now: float) -> Transition:
    """Requeue at once after the first loss (an engine or a host went away), and with growing pauses after more."""
    counters = msgspec.structs.replace(counters, losses=counters.losses + 1)
    if counters.losses >= policy.max_losses:
        return _transition("hold", counters, outcome, f"lost {counters.losses} times: {outcome.reason}")
    if counters.losses == 1:
        return _transition("requeue", counters, outcome)
    return _transition("requeue", counters, outcome, resume_at=now + _backoff(FAILED_SECONDS, counters.losses - 1))


def _after_refusal(counters: Counters, outcome: AttemptOutcome, policy: Policy, now: float) -> Transition:
    """Requeue with growing pauses. A refusal is not charged, but it must not be repeated at once."""
    counters = msgspec.structs.replace(counters, refusals=counters.refusals + 1)
    if counters.refusals >= policy.max_refusals:
        return _transition("hold", counters, outcome, f"refused {counters.refusals} times: {outcome.reason}")
    steps = TRY_LATER_SECONDS if outcome.ending == "try_later" else REFUSED_SECONDS
    wait_until = now + _backoff(steps, counters.refusals)
    return _transition("requeue", counters, outcome, resume_at=max(wait_until, outcome.resume_at or 0.0))


def _backoff(steps: tuple[float, ...], nth: int) -> float:
    return steps[min(nth, len(steps)) - 1]


def _transition(
    step: Step, counters: Counters, outcome: AttemptOutcome, reason: str | None = None, resume_at: float | None = None
) -> Transition:
    is_requeued = step == "requeue"
    return Transition(
        step=step,
        state=next_state("running", step),
        ending=outcome.ending,
        counters=counters,
        reason=reason or outcome.reason,
        resume_at=(resume_at if resume_at is not None else outcome.resume_at) if is_requeued else None,
        exit_code=outcome.exit_code,
    )
