"""Lessons 1 to 22 of docs/decisions/lessons.md on the bare Governor: failures of other systems that must not recur."""

import math
from itertools import pairwise

import msgspec
import pytest

from paceline.core import Deferred, Governor, GovernorSettings, Granted, Ticket
from paceline.core.gates.reopening import first_look
from paceline.core.signals import Overloaded, PlatformLimit, QuotaClosed, RateLimited, Succeeded, Usage
from paceline.core.values.scopes import path_scopes
from paceline.core.values.tickets import PollUsage
from paceline.errors import InvalidLimit, UnresolvedModel
from paceline.testing import World

OPUS = "anthropic/max-1/opus-4-6"


def governor_with(limit: int | None = None, scope: str = "umans", **settings: object) -> Governor:
    limits = {} if limit is None else {scope: limit}
    return Governor(msgspec.convert({"limits": limits, **settings}, GovernorSettings), now=0.0)


def run(ticket_id: str, scope: str = "umans", group: str = "", priority: int = 0, since: float | None = None) -> Ticket:
    return Ticket(ticket_id, ("runs", *path_scopes(scope)), group, priority, since)


def ask(governor: Governor, *ticket_ids: str, now: float = 0.0, scope: str = "umans") -> list[str]:
    """Ask for each; the ids that were let in at once."""
    verdicts = [governor.request(run(ticket_id, scope), now=now) for ticket_id in ticket_ids]
    return [verdict.ticket_id for verdict in verdicts if isinstance(verdict, Granted)]


def let_in(governor: Governor, now: float) -> list[str]:
    return [effect.ticket_id for effect in governor.advance(now=now) if isinstance(effect, Granted)]


def polls(governor: Governor, now: float) -> list[str]:
    return [effect.scope for effect in governor.advance(now=now) if isinstance(effect, PollUsage)]


def live_through(governor: Governor, start: float, until: float) -> list[tuple[float, str]]:
    """Follow every wake-up; who was let in, and when."""
    seen = [(start, ticket_id) for ticket_id in let_in(governor, start)]
    while (wakeup := governor.next_wakeup()) is not None and wakeup <= until:
        seen += [(wakeup, ticket_id) for ticket_id in let_in(governor, wakeup)]
    return seen + [(until, ticket_id) for ticket_id in let_in(governor, until)]


def limits_of(governor: Governor, scope: str = "umans", now: float = 0.0) -> tuple[int | None, ...]:
    """Effective, configured, platform, adaptive."""
    status = governor.status(scope, now=now)
    assert status is not None
    return status.limit, status.configured, status.platform, status.adaptive


def in_flight(governor: Governor, scope: str = "umans", now: float = 0.0) -> int:
    status = governor.status(scope, now=now)
    return 0 if status is None else status.in_flight


def reason(verdict: object) -> tuple[str, str]:
    assert isinstance(verdict, Deferred), verdict
    return verdict.reason, verdict.scope


def gated_governor() -> Governor:
    """Four live slots of four, three waiters, and a provider that can be asked."""
    governor = governor_with(4, usage_scopes=("umans",))
    assert ask(governor, "a", "b", "c", "d") == ["a", "b", "c", "d"]
    assert ask(governor, "x", "y", "z") == []
    return governor


# -- Admission ------------------------------------------------------------------------------------------


def test_lesson_01_one_usage_reading_lets_in_only_what_it_leaves() -> None:
    governor = gated_governor()
    governor.advance(now=0.0)
    governor.report("umans", Usage(concurrent_sessions=4), now=0.1)

    for ticket_id in ("a", "b", "c"):
        governor.release(ticket_id, now=0.5)
    assert polls(governor, now=0.5) == ["umans"], "three releases in one tick share one poll"
    governor.report("umans", Usage(concurrent_sessions=3), now=0.6)

    assert let_in(governor, now=0.6) == ["x"]
    assert reason(governor.why("y", now=0.6)) == ("usage_gate", "umans")


def test_lesson_01_honest_readings_let_in_the_rest() -> None:
    governor = gated_governor()
    for ticket_id in ("a", "b", "c"):
        governor.release(ticket_id, now=0.5)
    entered: list[str] = []
    now = 0.5
    for _ in range(20):
        for effect in governor.advance(now=now):
            if isinstance(effect, Granted):
                entered.append(effect.ticket_id)
            elif isinstance(effect, PollUsage):
                governor.report("umans", Usage(concurrent_sessions=in_flight(governor, now=now)), now=now)
        now += 0.5
    assert entered == ["x", "y", "z"]


def test_lesson_02_a_newcomer_does_not_pass_the_waiter_the_gate_refused() -> None:
    governor = gated_governor()
    governor.advance(now=0.0)
    governor.release("a", now=0.5)
    governor.advance(now=0.5)
    governor.report("umans", Usage(concurrent_sessions=4), now=0.6)
    assert let_in(governor, now=0.6) == []

    same_line = governor.request(run("newcomer"), now=0.7)
    other_group = governor.request(run("favoured", group="campaign", priority=9), now=0.7)
    never_waits = governor.try_request(run("impatient"), now=0.7)

    assert [reason(v)[1] for v in (same_line, other_group, never_waits)] == ["umans"] * 3
    governor.report("umans", Usage(concurrent_sessions=3), now=0.8)
    entered = let_in(governor, now=0.8)
    assert len(entered) == 1
    assert "newcomer" not in entered


def test_lesson_03_a_poll_that_never_answers_does_not_block_the_scope() -> None:
    governor = gated_governor()
    governor.advance(now=0.0)
    for ticket_id in ("a", "b", "c"):
        governor.release(ticket_id, now=0.5)

    entered = live_through(governor, 0.5, 30.0)

    assert [ticket_id for _, ticket_id in entered] == ["x", "y", "z"]
    assert entered[0][0] <= 0.5 + 5.0 + 1.0, "unknown after the time-out of 5 s"


def test_lesson_03_one_poll_at_a_time() -> None:
    governor = gated_governor()
    asked = [now / 10 for now in range(49) if polls(governor, now=now / 10)]
    assert asked == [0.0], "the first is still unanswered"


def test_lesson_04_unknown_usage_lets_in_one_at_a_time() -> None:
    governor = gated_governor()
    governor.advance(now=0.0)
    for ticket_id in ("a", "b", "c"):
        governor.release(ticket_id, now=0.5)
    entered: list[tuple[float, str]] = []
    now = 0.5
    for _ in range(100):
        for effect in governor.advance(now=now):
            if isinstance(effect, Granted):
                entered.append((now, effect.ticket_id))
            elif isinstance(effect, PollUsage):
                governor.report("umans", Usage(), now=now)
        now = round(now + 0.1, 3)
    assert [ticket_id for _, ticket_id in entered] == ["x", "y", "z"]
    gaps = [later[0] - earlier[0] for earlier, later in pairwise(entered)]
    assert all(gap >= 1.0 - 1e-9 for gap in gaps), entered


def test_lesson_04_unknown_usage_still_respects_the_cooldown() -> None:
    governor = governor_with(1, usage_scopes=("umans",), cooldown=8.0)
    ask(governor, "a", "x")
    governor.release("a", now=1.0)
    entered: list[float] = []
    now = 1.0
    while now < 20.0:
        for effect in governor.advance(now=now):
            if isinstance(effect, PollUsage):
                governor.report("umans", Usage(), now=now)
            elif isinstance(effect, Granted):
                entered.append(now)
        now = round(now + 0.1, 3)
    assert len(entered) == 1
    assert entered[0] >= 9.0


def test_lesson_05_deleting_the_limit_and_setting_it_again_forgets_no_live_slot() -> None:
    governor = governor_with(4)
    ask(governor, "a", "b", "c", "d")
    governor.remove_limit("umans", now=1.0)
    governor.set_limit("umans", 4, now=2.0)

    assert reason(governor.try_request(run("e"), now=3.0)) == ("limit", "umans")
    assert in_flight(governor) == 4


def test_lesson_05_removing_the_limit_lets_all_waiters_in() -> None:
    governor = governor_with(1)
    ask(governor, "a", "b", "c")
    governor.remove_limit("umans", now=1.0)
    assert let_in(governor, now=1.0) == ["b", "c"]
    governor.set_limit("umans", 2, now=2.0)
    assert in_flight(governor, now=2.0) == 3


def test_lesson_06_six_dispatchers_that_ask_before_any_process_exists_start_four() -> None:
    governor = governor_with(4)
    assert ask(governor, "1", "2", "3", "4", "5", "6") == ["1", "2", "3", "4"]


def test_lesson_07_only_leases_are_counted_and_nothing_drifts() -> None:
    governor = governor_with(3)
    ask(governor, "a", "b", "c", "d")
    for ticket_id in ("a", "a", "nobody", "d"):
        governor.release(ticket_id, now=1.0)
    governor.cancel("b", now=1.0)
    let_in(governor, now=1.0)
    counts = [in_flight(governor, scope, now=1.0) for scope in ("runs", "umans")]
    held = [ticket_id for ticket_id in "abcd" if governor.renew(ticket_id, now=1.0)]
    assert counts == [len(held)] * 2


def test_lesson_07_another_client_of_the_same_model_is_seen() -> None:
    governor = governor_with(2, "anthropic/*/opus-*")
    governor.request(run("theirs", "anthropic/max-1/claude-opus-4-6-20260105"), now=0.0)
    governor.request(run("ours", OPUS), now=0.0)
    assert reason(governor.try_request(run("third", "anthropic/max-1/claude-opus-4.6"), now=0.0)) == ("limit", OPUS)


def test_lesson_08_a_ticket_without_a_model_does_not_skip_the_caps_and_has_the_strictest() -> None:
    limits: dict[str, int | None] = {"anthropic/*/opus-*": 2, "anthropic/*/sonnet-*": 24}
    governor = Governor(GovernorSettings(limits=limits), now=0.0)
    assert ask(governor, "a", "b", scope="anthropic/max-1") == ["a", "b"]
    verdict = governor.request(run("c", "anthropic/max-1"), now=0.0)
    detail = "the strictest model cap (2/2) on max-1 is reached; no model was named"
    assert verdict == Deferred("c", "limit", "anthropic/max-1/default", detail, None, 1)
    assert ask(governor, "elsewhere", scope="anthropic/max-2") == ["elsewhere"]
    assert ask(governor, "named", scope="anthropic/max-1/sonnet") == ["named"]


def test_lesson_08_a_cap_set_live_applies_to_a_ticket_without_a_model() -> None:
    governor = governor_with(4, "anthropic/*/opus-*")
    assert ask(governor, "a", scope="anthropic/max-1") == ["a"]
    governor.set_limit("anthropic/*/haiku-*", 1, now=0.0)
    assert governor.get_limit("anthropic/max-1/default") == 1
    assert reason(governor.try_request(run("b", "anthropic/max-1"), now=0.0)) == ("limit", "anthropic/max-1/default")
    governor.remove_limit("anthropic/*/haiku-*", now=0.0)
    assert ask(governor, "b", scope="anthropic/max-1") == ["b"]


def test_lesson_08_without_caps_per_model_no_model_is_added() -> None:
    governor = governor_with(4, "anthropic/*")
    ask(governor, "a", scope="anthropic/max-1")
    assert governor.status("anthropic/max-1/default", now=0.0) is None


def test_lesson_08_a_ticket_without_account_and_model_is_refused_where_models_have_caps() -> None:
    governor = governor_with(1, "anthropic/*/opus-*")
    with pytest.raises(UnresolvedModel, match="'anthropic' names no account and no model"):
        governor.request(run("unresolved", "anthropic"), now=0.0)
    assert ask(governor, "resolved", scope=OPUS) == ["resolved"]
    assert ask(governor, "elsewhere", scope="umans") == ["elsewhere"]


def test_lesson_08_the_cap_names_the_model_it_is_about() -> None:
    governor = governor_with(4, "anthropic/*/opus-*")
    ask(governor, "a", "b", "c", "d", scope=OPUS)
    verdict = governor.request(run("e", OPUS), now=0.0)
    assert verdict == Deferred("e", "limit", OPUS, "opus-4-6 at its cap (4/4) on max-1", None, 1)


@pytest.mark.parametrize("limit", [0, -1, "10", "abc", 4.5, 4.0, True, False, math.nan, math.inf, [], b"4"])
def test_lesson_09_a_limit_is_a_whole_number_or_none(limit: object) -> None:
    governor = governor_with(4)
    with pytest.raises(InvalidLimit) as caught:
        governor.set_limit("umans", limit, now=0.0)  # type: ignore[arg-type]
    assert repr(limit) in str(caught.value)
    assert governor.get_limit("umans") == 4
    with pytest.raises(InvalidLimit):
        GovernorSettings(limits={"umans": limit})  # type: ignore[dict-item]


def test_lesson_09_none_means_unlimited() -> None:
    governor = governor_with(1)
    ask(governor, "a", "b")
    governor.set_limit("umans", None, now=1.0)
    assert let_in(governor, now=1.0) == ["b"]
    assert limits_of(governor, now=1.0) == (None, None, None, None)


def test_lesson_10_a_full_limiter_lets_the_queue_wait() -> None:
    governor = governor_with(1)
    ask(governor, "a", "b", "c")
    entered: list[str] = []
    for now in range(1, 4):
        for ticket_id in ("a", *entered):
            governor.release(ticket_id, now=float(now))
        entered += let_in(governor, now=float(now))
    assert entered == ["b", "c"]


def test_lesson_11_a_run_asked_for_again_is_one_run() -> None:
    governor = governor_with(2)
    first = governor.request(run("r1"), now=0.0)
    assert governor.request(run("r1"), now=1.0) == first
    governor.release("r1", now=2.0)
    assert in_flight(governor, now=2.0) == 0


def test_lesson_12_a_cancelled_waiter_is_never_let_in() -> None:
    governor = governor_with(1)
    ask(governor, "a", "b", "c")
    governor.cancel("b", now=1.0)
    governor.release("a", now=2.0)
    assert let_in(governor, now=2.0) == ["c"]
    assert governor.why("b", now=2.0) is None


def test_lesson_13_an_old_agent_cannot_starve_a_younger_one() -> None:
    governor = governor_with(1, cooldown=0.5)
    start = 10_000.0
    governor.request(run("old-0", since=1.0), now=start)
    governor.request(run("young", since=start), now=start)
    now, turns = start, 0
    while turns < 50:
        now += 3.0
        governor.request(run(f"old-{turns + 1}", since=1.0), now=now)
        governor.release(f"old-{turns}", now=now)
        if "young" in [ticket_id for _, ticket_id in live_through(governor, now, now + 0.5)]:
            break
        turns += 1
    assert now - start <= 60.0 + 3.0, "ageing is the longest head start"
    assert turns > 1, "the old agent does have a head start"


def test_lesson_14_priority_is_used_across_partitions() -> None:
    """Groups in different scopes of one pool share it by weight, not only inside one partition."""
    governor = governor_with(3, "runs")
    for number in range(12):
        governor.request(run(f"low-{number}", "umans", group="low", priority=0), now=0.0)
        governor.request(run(f"high-{number}", "openai", group="high", priority=1), now=0.0)
    turns, now = [], 0.0
    for _ in range(9):
        now += 1.0
        for ticket in sorted(f"{name}-{n}" for name in ("low", "high") for n in range(12)):
            governor.release(ticket, now=now)
        turns += [ticket_id.split("-")[0] for ticket_id in let_in(governor, now=now)]
    assert (turns[:18].count("high"), turns[:18].count("low")) in {(11, 7), (12, 6), (13, 5)}


@pytest.mark.parametrize("seed", range(4))
def test_lesson_14_shares_follow_priority(seed: int) -> None:
    figures = World(seed, saturated=True, steps=5000).run()
    assert figures.jain is not None
    assert figures.jain >= 0.98


# -- 429s -------------------------------------------------------------------------------------------------


def test_lesson_15_one_incident_steps_once() -> None:
    governor = governor_with(8)
    streams = [f"s{n}" for n in range(8)]
    ask(governor, *streams)
    for number, ticket_id in enumerate(streams):
        governor.report(
            "umans", RateLimited(retry_after=5.0, cause="concurrency", ticket=ticket_id), now=1.0 + number / 10
        )
    assert limits_of(governor, now=2.0) == (7, 8, None, 7)


def test_lesson_15_reports_without_a_ticket_belong_to_the_running_incident() -> None:
    governor = governor_with(8)
    ask(governor, "a", "b", "c")
    for now in (1.0, 2.0, 3.0):
        governor.report("umans", RateLimited(retry_after=5.0), now=now)
    assert limits_of(governor, now=3.0) == (7, 8, None, 7)


def test_lesson_15_the_limit_climbs_back() -> None:
    governor = governor_with(8)
    ask(governor, *(f"s{n}" for n in range(8)))
    governor.report("umans", RateLimited(retry_after=5.0, ticket="s0"), now=1.0)
    held, asked, now = [f"s{n}" for n in range(8)], 8, 1.0
    while limits_of(governor, now=now)[0] != 8:
        now += 5.0
        governor.release(held.pop(0), now=now)
        if governor.try_request(run(f"s{asked}"), now=now).__class__ is Granted:
            held.append(f"s{asked}")
        asked += 1
        governor.request(run(f"s{asked}"), now=now)
        held += let_in(governor, now=now)
        if governor.why(f"s{asked}", now=now) is None and f"s{asked}" not in held:
            held.append(f"s{asked}")
        asked += 1
        for ticket_id in held:
            governor.renew(ticket_id, now=now)
        assert now < 4 * 3600.0, "under demand and success the configured limit is back within hours"
    assert limits_of(governor, now=now)[:2] == (8, 8)


def test_lesson_16_the_providers_own_trouble_leaves_the_limit_alone() -> None:
    governor = governor_with(8)
    ask(governor, "a", "b")
    for ticket_id in ("a", "b"):
        governor.report("umans", Overloaded(ticket=ticket_id), now=1.0)
    assert limits_of(governor, now=1.0) == (8, 8, None, None)
    assert reason(governor.try_request(run("c"), now=5.9)) == ("paused", "umans")


def test_lesson_16_overload_pauses_back_off_from_five_seconds_to_five_minutes() -> None:
    governor = governor_with(8)
    now, pauses = 0.0, []
    for number in range(12):
        governor.request(run(f"t{number}"), now=now)
        let_in(governor, now)
        governor.report("umans", Overloaded(ticket=f"t{number}"), now=now)
        status = governor.status("umans", now=now)
        assert status is not None
        assert status.paused_until is not None
        pauses.append(status.paused_until - now)
        now = status.paused_until
        governor.release(f"t{number}", now=now)
    assert pauses[0] == pytest.approx(5.0)
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(300.0)


def test_lesson_16_the_kinds_are_told_apart() -> None:
    expected = {None: 7, "concurrency": 7, "requests": 8, "tokens": 8, "starts": 8}
    stepped = {}
    for cause in expected:
        governor = governor_with(8)
        ask(governor, "a")
        governor.report(
            "umans", msgspec.convert({"type": "RateLimited", "cause": cause, "ticket": "a"}, RateLimited), now=1.0
        )
        stepped[cause] = limits_of(governor, now=1.0)[0]
    assert stepped == expected


def paused_until(governor: Governor, now: float) -> float | None:
    status = governor.status("umans", now=now)
    assert status is not None
    return status.paused_until if status.paused else None


def test_lesson_17_pauses_only_extend() -> None:
    governor = governor_with(4)
    governor.report("umans", RateLimited(retry_after=60.0), now=0.0)
    governor.report("umans", RateLimited(retry_after=5.0), now=10.0)
    assert paused_until(governor, now=10.0) == 60.0
    governor.report("umans", RateLimited(retry_after=90.0), now=20.0)
    assert paused_until(governor, now=20.0) == 110.0


@pytest.mark.parametrize("retry_after", [0, 0.0, -5.0, math.nan, math.inf, -math.inf, 1e300, None])
def test_lesson_17_a_senseless_retry_after_is_the_default_pause(retry_after: float | None) -> None:
    governor = governor_with(4)
    governor.report("umans", RateLimited(retry_after=retry_after), now=0.0)
    assert paused_until(governor, now=0.0) == 30.0


def test_lesson_17_removing_the_limit_does_not_lift_the_pause() -> None:
    governor = governor_with(4)
    governor.report("umans", RateLimited(retry_after=60.0), now=0.0)
    governor.remove_limit("umans", now=1.0)
    assert reason(governor.request(run("a"), now=2.0)) == ("paused", "umans")
    assert live_through(governor, 2.0, 100.0) == [(60.0, "a")]


def test_lesson_18_a_429_of_a_provider_without_a_limit_pauses_and_steps() -> None:
    governor = governor_with()
    ask(governor, "a", "b", "c", "d")
    governor.report("umans", RateLimited(retry_after=10.0, ticket="a"), now=1.0)
    assert limits_of(governor, now=1.0) == (3, None, None, 3)
    assert reason(governor.request(run("e"), now=2.0)) == ("paused", "umans")
    for ticket_id in ("a", "b"):
        governor.release(ticket_id, now=3.0)
    assert live_through(governor, 3.0, 20.0) == [(11.0, "e")]


def test_lesson_19_a_platform_limit_concerns_the_scope_that_reported_it() -> None:
    governor = governor_with(8, "anthropic/*/opus-*")
    ask(governor, "a", scope=OPUS)
    governor.report(OPUS, PlatformLimit(limit=2, in_use=2), now=1.0)
    governor.request(run("b", "anthropic/max-2/opus-4-6"), now=1.0)
    assert limits_of(governor, OPUS, now=1.0)[:3] == (2, 8, 2)
    assert limits_of(governor, "anthropic/max-2/opus-4-6", now=1.0) == (8, 8, None, None)


def test_lesson_19_x_of_zero_does_not_stop_the_scheduler() -> None:
    governor = governor_with(8)
    governor.report("umans", PlatformLimit(limit=0, in_use=3), now=0.0)
    assert limits_of(governor)[0] == 1
    assert ask(governor, "a", "b") == ["a"]
    governor.release("a", now=1.0)
    assert let_in(governor, now=1.0) == ["b"]


def test_lesson_19_after_the_first_refusal_the_same_round_tries_no_more() -> None:
    governor = governor_with(8)
    assert ask(governor, "a", "b", "c") == ["a", "b", "c"]
    governor.report("umans", PlatformLimit(limit=3, in_use=3), now=1.0)
    assert ask(governor, "d", "e", now=1.0) == []
    assert reason(governor.why("d", now=1.0)) == ("platform_limit", "umans")


def test_lesson_19_a_platform_limit_outlives_a_restart_and_is_probed_upward() -> None:
    governor = governor_with(8)
    ask(governor, "a", "b", "c")
    governor.report("umans", PlatformLimit(limit=3, in_use=3), now=1.0)
    governor = Governor.restore(governor.snapshot(), now=2.0)
    assert limits_of(governor, now=2.0)[:3] == (3, 8, 3)

    held, asked, now = ["a", "b", "c"], 0, 2.0
    while limits_of(governor, now=now)[0] == 3:
        now += 10.0
        governor.release(held.pop(0), now=now)
        for _ in range(2):
            asked += 1
            if isinstance(governor.request(run(f"n{asked}"), now=now), Granted):
                held.append(f"n{asked}")
        held += let_in(governor, now=now)
        for ticket_id in held:
            governor.renew(ticket_id, now=now)
        assert now <= 2.0 + 1800.0 + 10.0, "a platform limit is probed again within half an hour"


def test_lesson_20_a_unit_that_meets_429_at_once_does_not_loop() -> None:
    governor = governor_with(4)
    starts, now = 0, 0.0
    while now < 3600.0:
        ticket = run(f"try-{starts}")
        governor.request(ticket, now=now)
        while governor.why(ticket.id, now=now) is not None:
            wakeup = governor.next_wakeup()
            assert wakeup is not None
            now = wakeup
            governor.advance(now=now)
        starts += 1
        governor.report("umans", RateLimited(ticket=ticket.id), now=now)
        governor.release(ticket.id, now=now)
    assert starts <= 3600.0 / 30.0 + 1


def test_lesson_21_starts_are_spaced_after_too_many_at_once() -> None:
    governor = governor_with(8)
    ask(governor, "a")
    governor.report("umans", RateLimited(retry_after=5.0, cause="starts", ticket="a"), now=0.0)
    ask(governor, *(f"w{n}" for n in range(6)), now=1.0)

    entered = live_through(governor, 1.0, 3600.0)

    times = [when for when, _ in entered]
    assert [ticket_id for _, ticket_id in entered] == [f"w{n}" for n in range(6)]
    assert times[0] >= 5.0
    assert len(set(times)) == len(times), "no two start together"
    assert limits_of(governor, now=3600.0)[:2] == (8, 8)


def test_lesson_21_the_rest_follows_the_canary_in_a_wave() -> None:
    governor = governor_with(20)
    governor.report("umans", QuotaClosed(resets_at=1000.0, window="5h"), now=0.0)
    ask(governor, *(f"w{n}" for n in range(8)), now=1.0)
    assert live_through(governor, 1.0, 1060.0) == [(first_look(1000.0), "w0")], "one canary after the reset"

    governor.report("umans", Succeeded(ticket="w0"), now=1060.0)
    entered = live_through(governor, 1060.0, 1200.0)

    assert [ticket_id for _, ticket_id in entered] == [f"w{n}" for n in range(1, 8)]
    times = [when for when, _ in entered]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps[0] >= 0.2, "few at first"
    assert times[-1] - times[0] <= 10.0, "and then many"


def test_lesson_22_the_configured_limit_is_never_overwritten() -> None:
    governor = governor_with(8)
    ask(governor, "a")
    governor.report("umans", RateLimited(retry_after=1.0, ticket="a"), now=1.0)
    governor.report("umans", PlatformLimit(limit=5, in_use=6), now=2.0)
    assert governor.get_limit("umans") == 8
    stored = msgspec.json.encode(governor.snapshot())
    governor = Governor.restore(msgspec.json.decode(stored, type=type(governor.snapshot())), now=3.0)
    assert governor.get_limit("umans") == 8
    assert limits_of(governor, now=3.0) == (5, 8, 5, 7)

    status = governor.status("umans", now=3.0)
    assert status is not None
    assert (status.auto_reduced, status.auto_reduced_from) == (True, 8)

    governor.restore_limit("umans", now=4.0)
    assert limits_of(governor, now=4.0) == (8, 8, None, None)
