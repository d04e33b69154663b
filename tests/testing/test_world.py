"""World: hundreds of seeded lives without a broken promise, and proof that the checkers see a broken one."""

from collections.abc import Callable

import msgspec
import pytest

from paceline.core import Deferred, Expired, Governor, GovernorSettings, Granted, PollUsage, Ticket
from paceline.core.signals import Overloaded, QuotaClosed, RateLimited, Succeeded, Usage
from paceline.core.values.tickets import Effect, Verdict
from paceline.errors import InvalidInput
from paceline.testing import World
from paceline.testing.checked_governor import BrokenPromise, CheckedGovernor
from paceline.testing.world import Figures

SEEDS_PER_CHUNK = 20
SUITE_SEEDS = 200
ENGINE_SEEDS = 40
ENGINE_SEEDS_PER_CHUNK = 20
SOAK_SEEDS_PER_CHUNK = 500


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Draw the seeds of a soak, which come after those of the suite: `--seeds` lives and `--nights` of an engine."""
    if "first_life" in metafunc.fixturenames:
        count = metafunc.config.getoption("--seeds")
        metafunc.parametrize("first_life", range(SUITE_SEEDS, SUITE_SEEDS + count, SOAK_SEEDS_PER_CHUNK))
    if "first_night" in metafunc.fixturenames:
        count = metafunc.config.getoption("--nights")
        metafunc.parametrize("first_night", range(ENGINE_SEEDS, ENGINE_SEEDS + count, ENGINE_SEEDS_PER_CHUNK))


@pytest.mark.parametrize("first", range(0, SUITE_SEEDS, SEEDS_PER_CHUNK))
def test_no_promise_is_broken(first: int) -> None:
    """Nor does nothing happen: a world without trouble would pass every check."""
    figures = [World(seed).run() for seed in range(first, first + SEEDS_PER_CHUNK)]
    assert sum(f.granted_from_queue for f in figures) > 300
    assert sum(f.reports for f in figures) > 30
    assert sum(f.polls for f in figures) > 15
    assert sum(f.restarts for f in figures) > 15
    assert sum(f.expired for f in figures) > 2


def test_a_needless_wake_up_changes_no_order_after_a_restart() -> None:
    """A Governor that never stopped woke up for nothing, and let a lane watch another scope than a restored one."""
    World(11329).run()


def test_scopes_that_are_due_together_have_the_same_order_after_a_restart() -> None:
    World(11435).run()


def test_a_missed_reset_is_still_missed_when_the_clock_is_set_back_behind_it() -> None:
    World(11263).run()


def test_many_streams_that_meet_an_overload_in_its_pause_are_one_refusal() -> None:
    World(20267, faults=True, clock_steps=True, signals=True, restarts=True).run()


def test_tokens_of_a_session_whose_runs_have_ended_are_counted_once_after_a_restart() -> None:
    World(7460).run()


@pytest.mark.parametrize("first", range(0, 20, 10))
def test_no_promise_is_broken_where_tickets_are_spread_and_reserves_are_kept(first: int) -> None:
    for seed in range(first, first + 10):
        World(seed, pacing=True, signals=True).run()
        World(seed, pacing=True, signals=True, engine=True).run()


@pytest.mark.parametrize("first", range(0, 60, 30))
def test_no_promise_is_broken_by_a_provider_whose_announcements_are_wrong(first: int) -> None:
    """Resets move later by a window, come minutes late or early; strangers take places; Retry-After is absurd."""
    figures = [World(seed, faults=True).run() for seed in range(first, first + 30)]
    assert sum(figure.crowded_out for figure in figures) > 0
    assert sum(figure.misled for figure in figures) > 0


def test_the_worlds_have_resets_that_move_and_looks_that_stay_where_they_were() -> None:
    """In seed 85 a late refusal comes between a missed reset and the look after it."""
    figures = [World(seed, faults=True).run() for seed in (2, 85)]
    assert all(figure.moved_resets > 0 for figure in figures)


@pytest.mark.parametrize("first", range(0, 20, 10))
def test_a_whole_engine_breaks_no_promise_where_announcements_are_wrong(first: int) -> None:
    figures = [World(seed, faults=True, engine=True).run().fleet for seed in range(first, first + 10)]
    assert sum(figure.parks for figure in figures if figure is not None) > 0
    assert sum(figure.refused for figure in figures if figure is not None) > 0


@pytest.mark.soak
def test_no_promise_is_broken_in_a_long_soak(first_life: int) -> None:
    for seed in range(first_life, first_life + SOAK_SEEDS_PER_CHUNK):
        World(seed).run()
        if seed % 4 == 0:
            World(seed, faults=True).run()


@pytest.mark.parametrize("first", range(0, ENGINE_SEEDS, ENGINE_SEEDS_PER_CHUNK))
def test_no_promise_is_broken_by_a_whole_engine(first: int) -> None:
    """No limit exceeded, no unit lost or run twice, no attempt for what was no failure, and every wait has a reason."""
    figures = [World(seed, engine=True).run().fleet for seed in range(first, first + ENGINE_SEEDS_PER_CHUNK)]
    assert sum(figure.parks for figure in figures if figure is not None) > 0
    assert sum(figure.crashes for figure in figures if figure is not None) > 0
    assert sum(figure.unreached for figure in figures if figure is not None) > 0
    assert sum(figure.adopted for figure in figures if figure is not None) > 0


def test_a_limit_that_falls_while_nothing_can_be_stored_holds_for_slots_granted_before() -> None:
    World(33, engine=True).run()


@pytest.mark.soak
def test_no_promise_is_broken_by_a_whole_engine_in_a_long_soak(first_night: int) -> None:
    for seed in range(first_night, first_night + ENGINE_SEEDS_PER_CHUNK):
        World(seed, engine=True).run()


def test_a_night_on_a_full_disk_ends_well() -> None:
    figures = World(3, engine=True).run().fleet
    assert figures is not None
    assert figures.unstored > 0


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_shares_follow_priority(first: int) -> None:
    for seed in range(first, first + 10):
        figures = World(seed, saturated=True, steps=5000).run()
        assert figures.jain is not None
        assert figures.jain >= 0.98


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_nobody_waits_forever_for_a_budget_that_is_stated_thousands_of_times_a_second(first: int) -> None:
    figures = [World(seed, fast=True, steps=300).run() for seed in range(first, first + 20)]
    assert min(figure.released for figure in figures) == 300
    assert max(figure.released / figure.seconds for figure in figures) > 1_000
    assert sum(figure.granted_from_queue for figure in figures) > 300


def test_the_same_seed_is_the_same_life() -> None:
    assert World(7, steps=200).run() == World(7, steps=200).run()
    assert World(7, steps=200).run() != World(8, steps=200).run()
    assert World(7, engine=True).run() == World(7, engine=True).run()


def test_figures_tell_what_happened() -> None:
    figures = World(3, steps=300, signals=True, usage=True, restarts=True, silent=0.2).run()
    assert isinstance(figures, Figures)
    assert figures.steps == 300
    assert min(figures.asked, figures.granted_from_queue, figures.reports, figures.restarts) > 0


@pytest.mark.parametrize(
    "knobs", [{"paths": 0}, {"steps": 0}, {"sessions": 2.0}, {"no_such_knob": 1}, {"twins": "yes"}]
)
def test_impossible_scenarios_are_refused(knobs: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        World(1, **knobs)


# -- the checkers are awake: a governor that breaks one promise is found out -----------------------------------


class Faulty(Governor):
    """Breaks one promise."""


class LetsOneTooManyIn(Faulty):
    def try_request(self, ticket: Ticket, *, now: float) -> Verdict:
        verdict = super().try_request(ticket, now=now)
        if isinstance(verdict, Deferred):
            return Granted(ticket.id, 10**9, now, 0.0, now + 300.0)
        return verdict


class SwallowsGrants(Faulty):
    def advance(self, *, now: float) -> list[Effect]:
        return [effect for effect in super().advance(now=now) if not isinstance(effect, Granted)]


class GrantsInReverse(Faulty):
    def advance(self, *, now: float) -> list[Effect]:
        return super().advance(now=now)[::-1]


class NeverWakes(Faulty):
    def next_wakeup(self) -> float | None:
        return None


class ForgetsItsLine(Faulty):
    def why(self, ticket_id: str, *, now: float) -> Deferred | None:
        return None


class AlwaysBlamesThePause(Faulty):
    def why(self, ticket_id: str, *, now: float) -> Deferred | None:
        why = super().why(ticket_id, now=now)
        return None if why is None else msgspec.structs.replace(why, reason="paused", retry_at=now + 1)


class ExpiresTheLiving(Faulty):
    def advance(self, *, now: float) -> list[Effect]:
        expired = [Expired(ticket_id, now + 30.0) for ticket_id in list(self.ledger.slots)[:1]]
        return [*super().advance(now=now), *expired]


class LosesSlotsAtTheSecondRelease(Faulty):
    def release(self, ticket_id: str, *, now: float) -> bool:
        was_held = super().release(ticket_id, now=now)
        for other in list(self.ledger.slots)[:1]:
            super().release(other, now=now)
        return was_held


FAULTS: list[type[Faulty]] = [
    LetsOneTooManyIn,
    SwallowsGrants,
    GrantsInReverse,
    NeverWakes,
    ForgetsItsLine,
    AlwaysBlamesThePause,
    ExpiresTheLiving,
    LosesSlotsAtTheSecondRelease,
]


def live_twenty_lives(knobs: dict[str, object]) -> None:
    for seed in range(20):
        World(seed, **knobs).run()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_governor_that_breaks_a_promise_is_found_out(fault: type[Faulty], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.testing.world.Governor", fault)
    knobs: dict[str, object] = {
        "restarts": False,
        "twins": False,
        "cooldowns": True,
        "sessions": 0.0,
        "signals": False,
        "usage": False,
    }
    with pytest.raises(AssertionError) as caught:
        live_twenty_lives(knobs)
    line = str(caught.value)
    assert line.startswith("World(seed=")
    assert ", restarts=False, twins=False, cooldowns=True" in line
    assert ").run()  # step " in line
    assert "\n" not in line


def checked_governor(**settings: object) -> CheckedGovernor:
    chosen = msgspec.convert({"limits": {"umans": 1}, **settings}, GovernorSettings)
    return CheckedGovernor(Governor(chosen, now=0.0), chosen, 0.0)


def run(ticket_id: str) -> Ticket:
    return Ticket(ticket_id, ("runs", "umans"))


def grant(ticket_id: str, now: float = 0.0, token: int = 10**9) -> Granted:
    return Granted(ticket_id, token, now, 0.0, now + 300.0)


def enter_anyway(checked: CheckedGovernor, ticket_id: str) -> None:
    """As if the governor had let it in."""
    checked._enter(run(ticket_id), grant(ticket_id, checked.wall, checked.expected.last_token + 1), waited=0.0)


def over_the_limit(checked: CheckedGovernor) -> None:
    checked.request(run("a"))
    enter_anyway(checked, "b")


def in_a_pause(checked: CheckedGovernor) -> None:
    checked.report("umans", RateLimited(retry_after=5.0))
    enter_anyway(checked, "a")


def in_an_announced_pause(checked: CheckedGovernor) -> None:
    checked.report("umans", Overloaded())
    checked.run_until(6.0)
    checked.report("umans", Overloaded())
    checked.run_until(12.0)  # the second pause is twice as long as promised at least
    enter_anyway(checked, "a")


def in_a_closed_window(checked: CheckedGovernor) -> None:
    checked.report("umans", QuotaClosed(resets_at=1000.0, source="field"))
    enter_anyway(checked, "a")


def beside_the_canary(checked: CheckedGovernor) -> None:
    checked.set_limit("umans", None)
    checked.report("umans", QuotaClosed(resets_at=1000.0, source="field"))
    checked.request(run("canary"))
    checked.run_until(1003.0)
    enter_anyway(checked, "a")


def with_an_old_token(checked: CheckedGovernor) -> None:
    checked.set_limit("umans", None)
    checked.request(run("a"))
    checked._enter(run("b"), grant("b", token=checked.expected.last_token), waited=0.0)


def past_the_gate(_: CheckedGovernor) -> None:
    checked = checked_governor(usage_scopes=("umans",))
    checked.request(run("a"))
    checked.request(run("b"))
    checked.report("umans", Usage(concurrent_sessions=1))
    checked.gates.check_gated_grant(run("b"), "umans", 1, checked.elapsed)


@pytest.mark.parametrize(
    ("trouble", "expected"),
    [
        (over_the_limit, "scope umans has 2 live slots over its limit of 1"),
        (in_a_pause, "a granted in umans, which is paused for another 5.000 s"),
        (in_an_announced_pause, "a granted in umans, which is paused for another 4.000 s"),
        (in_a_closed_window, "a granted in window quota of umans, 1000.000 s before the first canary"),
        (beside_the_canary, "a granted while a canary is out in window quota of umans"),
        (with_an_old_token, "fencing token 1 of b is not above 1"),
        (past_the_gate, "b granted in umans: the reading 1 and 0 later grants leave nothing of 1"),
    ],
)
def test_each_checker_says_what_was_broken(trouble: Callable[[CheckedGovernor], None], expected: str) -> None:
    with pytest.raises(BrokenPromise) as caught:
        trouble(checked_governor())
    assert str(caught.value) == expected


def test_a_second_poll_while_one_is_out_is_found_out() -> None:
    checked = checked_governor(usage_scopes=("umans",))
    checked.request(run("a"))
    checked.request(run("b"))
    assert checked.polls == ["umans"]
    with pytest.raises(BrokenPromise, match="a second usage poll of umans while one is under way"):
        checked._take(PollUsage("umans"))


def test_a_window_that_reopens_by_itself_is_found_out() -> None:
    checked = checked_governor()
    checked.report("umans", QuotaClosed(resets_at=1000.0, source="field"))
    checked.request(run("canary"))
    checked.run_until(1003.0)
    checked.report("umans", Succeeded(ticket="canary"))
    assert checked.gates.windows["umans"] == {}


def test_a_canary_may_go_after_a_missed_reset_although_the_clock_was_set_back_behind_it() -> None:
    # given a window whose stated reset passed without effect, so that the next look came five seconds later
    checked = checked_governor()
    checked.move_clock(1000.0)
    checked.report("umans", QuotaClosed(resets_at=900.0, source="field"))
    # when the clock is set back, the look is due, and a refusal from elsewhere states no reset
    checked.move_clock(700.0)
    checked.move_clock(706.0)
    checked.report("umans", QuotaClosed(source="field"))
    # then the look stays where it was
    assert isinstance(checked.request(run("canary")), Granted)
