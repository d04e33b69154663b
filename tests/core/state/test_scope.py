"""A scope's fast path: a gate that is present but not active costs a request nothing, and misses nothing."""

import math

import pytest

from paceline.core import Deferred, Governor, GovernorSettings, Granted, Ticket
from paceline.core.signals import Budget, Overloaded, QuotaClosed, Succeeded
from paceline.core.state.scope import Scope

SCOPE = "anthropic/max-1"


def reading(used: float, resets_at: float) -> Budget:
    return Budget(window="5h", used_ratio=used, resets_at=resets_at)


def windowed(reserve: float = 0.0) -> Governor:
    governor = Governor(GovernorSettings(limits={SCOPE: 4}, reserves={SCOPE: reserve}), now=0.0)
    governor.report(SCOPE, reading(0.2, 18000.0), now=0.0)
    return governor


def scope_of(governor: Governor) -> Scope:
    return governor.ledger.scopes.by_name[SCOPE]


def test_an_open_window_leaves_the_scope_on_its_fast_path_until_its_period_ends() -> None:
    scope = scope_of(windowed())
    assert (scope.open_cap, scope.notify_from, scope.alert) == (4, 18000.0, False)


@pytest.mark.parametrize("closed_by", [QuotaClosed(window="5h", resets_at=900.0), Overloaded(retry_after=5.0)])
def test_an_active_gate_takes_the_scope_off_its_fast_path(closed_by: QuotaClosed | Overloaded) -> None:
    governor = windowed()
    governor.report(SCOPE, closed_by, now=1.0)
    scope = scope_of(governor)
    assert (scope.open_cap, scope.notify_from, scope.alert) == (0, -math.inf, True)


def test_a_reserve_keeps_an_open_window_active() -> None:
    assert scope_of(windowed(reserve=0.1)).open_cap == 0


def test_a_spread_ticket_is_refused_by_a_window_that_lets_all_others_pass() -> None:
    governor = windowed()
    governor.report(SCOPE, reading(0.9, 18000.0), now=60.0)
    verdict = governor.request(Ticket("a", (SCOPE,), spread=True), now=61.0)
    assert isinstance(verdict, Deferred)
    assert verdict.reason == "pacing"
    assert scope_of(governor).open_cap == 0  # while it waits, its plan is kept up to date
    assert isinstance(governor.request(Ticket("b", (SCOPE,), group="b"), now=62.0), Granted)
    governor.cancel("a", now=63.0)
    assert scope_of(governor).open_cap == 4


def test_starts_on_the_fast_path_are_counted_when_the_next_reading_prices_them() -> None:
    governor = windowed(reserve=0.1)
    slow = scope_of(governor)
    fast = scope_of(unread := windowed())
    for each in (governor, unread):
        for number in range(4):
            each.request(Ticket(f"t{number}", (SCOPE,)), now=1.0)
        each.report(SCOPE, reading(0.4, 18000.0), now=2.0)
    assert fast.gates.in_order == slow.gates.in_order


def test_the_first_start_after_a_period_begins_the_next() -> None:
    governor = windowed()
    governor.request(Ticket("a", (SCOPE,)), now=18001.0)
    status = governor.status(SCOPE, now=18001.0)
    assert status is not None
    assert (status.windows[0].used_ratio, status.windows[0].expected_reset) == (None, 18001.0 + 5 * 3600.0)
    assert scope_of(governor).notify_from == 18001.0 + 5 * 3600.0


def test_an_overload_that_is_over_is_remembered_without_slowing_the_scope() -> None:
    governor = Governor(GovernorSettings(limits={SCOPE: 4}), now=0.0)
    governor.report(SCOPE, Overloaded(), now=0.0)
    governor.advance(now=5.0)
    scope = scope_of(governor)
    assert (scope.open_cap, len(scope.gates.in_order), scope.learns) == (4, 1, True)
    governor.report(SCOPE, Succeeded(), now=6.0)
    assert (scope.gates.in_order, scope.learns, scope.alert) == ((), False, False)


def test_plenty_of_stated_requests_leaves_the_scope_on_its_fast_path_and_every_grant_is_counted() -> None:
    governor = Governor(GovernorSettings(limits={SCOPE: 100}), now=0.0)
    governor.report(SCOPE, Budget(requests_remaining=9, requests_limit=10, requests_reset_at=1e6), now=0.0)
    scope = scope_of(governor)
    assert (scope.is_gated, scope.counter, scope.learner) == (False, *scope.gates.in_order, *scope.gates.in_order)

    verdicts = [governor.request(Ticket(f"t{n}", (SCOPE,)), now=1.0) for n in range(10)]

    assert [type(verdict) for verdict in verdicts] == [Granted] * 9 + [Deferred]
    assert (scope.is_gated, scope.open_cap) == (True, 0)
