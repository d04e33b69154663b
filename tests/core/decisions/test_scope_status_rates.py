"""Rates, paces and pauses in the status of a scope, and how a person ends them."""

from paceline.core import Governor, GovernorSettings, Granted, ScopeStatus, Ticket
from paceline.core.signals import Budget, RateLimited
from paceline.core.values.settings import Rate
from paceline.core.values.status import RateStatus

SCOPE = "openai/work"


def run(name: str) -> Ticket:
    return Ticket(name, ("runs", SCOPE), leased=False)


def status(governor: Governor, now: float) -> ScopeStatus:
    found = governor.status(SCOPE, now=now)
    assert found is not None
    return found


def test_a_rate_that_is_set_is_shown_with_what_is_used_of_it() -> None:
    governor = Governor(GovernorSettings(rates={SCOPE: Rate(rpm=2, tpm=900)}), now=0.0)
    for number in range(2):
        assert isinstance(governor.request(run(f"r{number}"), now=1.0), Granted)
    shown = status(governor, 2.0)
    assert shown.rates == (
        RateStatus("requests", "set", 2.0, 2.0, "set for the scope", 60.0, None, 61.0),
        RateStatus("tokens", "set", 2.0, 900.0, "set for the scope", 60.0, None, None),
    )
    assert shown.paced_until == 61.0


def test_a_stated_budget_is_shown_with_its_reset() -> None:
    governor = Governor(GovernorSettings(), now=0.0)
    reading = Budget(requests_remaining=0, requests_limit=60, requests_reset_at=61.5)
    governor.report(SCOPE, reading, now=1.5)
    (rate,) = status(governor, 1.5).rates
    assert (rate.kind, rate.source, rate.used, rate.limit, rate.since, rate.until) == (
        "requests", "headers", 60.0, 60.0, 1.5, 61.5,
    )  # fmt: skip


def test_a_budget_that_is_long_past_is_not_shown_although_nobody_entered_since() -> None:
    # given a budget that is stated once
    governor = Governor(GovernorSettings(), now=0.0)
    governor.report(SCOPE, Budget(requests_remaining=9, requests_limit=60, requests_reset_at=50.0), now=0.0)
    # when ten minutes pass after its reset
    shown = [len(status(governor, now).rates) for now in (10.0, 640.0, 660.0)]
    # then it is forgotten
    assert shown == [1, 1, 0]


def test_restore_ends_pauses_paces_and_learnt_rates() -> None:
    governor = Governor(GovernorSettings(limits={SCOPE: 2}), now=0.0)
    for number in range(2):
        governor.request(run(f"r{number}"), now=float(number))
    governor.request(run("waits"), now=0.0)
    governor.report(SCOPE, RateLimited(retry_after=50.0, cause="starts", ticket="r1"), now=2.0)
    paused = status(governor, 3.0)
    assert (paused.paused, paused.paused_since, paused.paused_reason) == (True, 2.0, "starts")
    assert paused.pace is not None

    governor.release("r0", now=4.0)
    governor.collect()
    governor.restore_limit(SCOPE, now=5.0)
    restored = status(governor, 5.0)
    assert (restored.paused, restored.pace, restored.paced_until, restored.rates) == (False, None, None, ())
    assert [effect.ticket_id for effect in governor.collect() if isinstance(effect, Granted)] == ["waits"]
