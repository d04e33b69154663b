"""The picture of the last day: drawn from real passes of an engine, bounded, and mended from the store."""

import msgspec
import pytest

from paceline.core import Governor, GovernorSettings, Ticket
from paceline.events import Event
from paceline.executors.interface import Launch
from paceline.simulation.agent_transcripts import answer, done, init, rejected, retry
from paceline.simulation.executor import Run
from paceline.store import SqliteStore, StoredEvent
from paceline.testing.engine_harness import HOUR, NOW, EngineHarness
from paceline.views import timeline as timelines
from paceline.views.timeline import Bar, LeftOut, Mark, Timeline, TimelineView, last_id_before

OPUS = "anthropic/max-1/opus-4-6"


def drawn(events: list[Event]) -> Timeline:
    timeline = Timeline()
    timeline.add([StoredEvent(number, event) for number, event in enumerate(events, 1)])
    return timeline


def rebuilt(harness: EngineHarness) -> Timeline:
    timeline = Timeline()
    timeline.add(harness.store.events(limit=100_000))
    return timeline


def started(unit: str, at: float, scope: str = OPUS) -> Event:
    return Event("unit.started", at, scope, unit, {"attempt": "a", "session_id": None})


def ended(unit: str, at: float, how: str = "done") -> Event:
    return Event(f"unit.{how}", at, None, unit, {})


def points(view: TimelineView, scope: str) -> list[tuple[float, int, int | None]]:
    (series,) = [series for series in view.series if series.scope == scope]
    return [(point.at, point.in_flight, point.limit) for point in series.points]


# -- an engine's night ------------------------------------------------------------------------------


async def test_bars_levels_and_marks_of_a_night_with_a_429_and_a_closed_window() -> None:
    reset = NOW + HOUR

    def script(launch: Launch) -> Run:
        if harness.clock.now() >= reset:
            return Run(stdout=init() + answer(), later=((60.0, done()),), seconds=60.0)
        if launch.env["PACELINE_UNIT"] == "night/u1":
            return Run(stdout=init() + answer() + retry(20.0), later=((90.0, done()),), seconds=90.0)
        return Run(stdout=init() + answer(), later=((100.0, rejected(reset)),), exit_code=1, seconds=600.0)

    async with EngineHarness(script, pool=4, limits={OPUS: 4}) as harness:
        harness.add_claude("night", 2)
        await harness.run(300.0)
        view = rebuilt(harness).view(NOW, harness.clock.now())

        units = {unit.id: unit for unit in harness.store.units().units}
        assert view.sessions == [
            Bar("night/u0", OPUS, "max-1", units["night/u0"].started_at or 0.0, units["night/u0"].ended_at, "parked"),
            Bar("night/u1", OPUS, "max-1", units["night/u1"].started_at or 0.0, units["night/u1"].ended_at, "done"),
        ]
        assert [(mark.kind, mark.scope, mark.detail) for mark in view.marks] == [
            ("rate_limited", OPUS, "paused for 20 s"),
            ("limit_step", OPUS, "limit reduced from 4 to 3"),
            ("window_closed", "anthropic/max-1", "the 5h window is spent, resets in 58 min"),
        ]
        assert [(in_flight, limit) for _, in_flight, limit in points(view, OPUS)] == [
            (2, 4),
            (2, 3),
            (1, 3),
            (0, 3),
            (0, 3),
        ]
        assert [scope.scope for scope in view.series] == ["anthropic", "anthropic/max-1", OPUS, "sessions"]

        await harness.run(2 * HOUR)
        view = rebuilt(harness).view(reset, harness.clock.now())
        assert [(bar.unit, bar.ending) for bar in view.sessions] == [("night/u0", "done")]
        assert [mark.kind for mark in view.marks if mark.kind.startswith("window")] == ["window_reopened"]


async def test_a_session_leaves_the_level_when_its_agent_ends_and_its_bar_covers_the_check() -> None:
    def script(launch: Launch) -> Run:
        return Run(seconds=100.0 if "-check" in launch.attempt_id else 60.0)

    async with EngineHarness(script, pool=1, heartbeat=1.0) as harness:
        harness.add("night", 2, check=("make", "test"))
        await harness.run(300.0)
        view = rebuilt(harness).view(NOW, harness.clock.now())

        assert [round((bar.ended_at or 0.0) - bar.started_at) for bar in view.sessions] == [160, 160]
        assert max(in_flight for _, in_flight, _ in points(view, "sessions")) == 1
        assert points(view, "sessions")[-1][1] == 0


async def test_running_bars_are_the_running_units_of_the_store() -> None:
    async with EngineHarness(lambda _: Run(seconds=HOUR), pool=3) as harness:
        harness.add("night", 9)
        await harness.run(HOUR + 60.0)

        view = rebuilt(harness).view(NOW, harness.clock.now())

        assert [bar.unit for bar in view.sessions if bar.ended_at is None] == harness.running()
        assert harness.running() == ["night/u3", "night/u4", "night/u5"]
        assert points(view, "sessions")[-1] == (harness.clock.now(), 3, None)
        assert points(view, "agent:command")[-1][1] == 3


async def test_a_crash_that_swallowed_the_end_of_a_session_is_mended_from_the_store() -> None:
    async with EngineHarness(pool=2) as harness:
        harness.add("night", 2)
        await harness.run(90.0)
        swallowed = [
            stored
            for stored in harness.store.events(limit=1000)
            if (stored.event.name, stored.event.unit) != ("unit.done", "night/u1")
        ]
        timeline = Timeline()
        timeline.add(swallowed)
        assert [bar.unit for bar in timeline.view(NOW, harness.clock.now()).sessions if bar.ended_at is None] == [
            "night/u1"
        ]

        timeline.reconcile(harness.store)

        assert timeline.view(NOW, harness.clock.now()) == rebuilt(harness).view(NOW, harness.clock.now())


async def test_a_session_whose_start_is_not_kept_any_more_is_shown_and_its_end_is_taken() -> None:
    async with EngineHarness(lambda _: Run(seconds=HOUR), pool=1) as harness:
        harness.add_claude("night", 1)
        await harness.run(60.0)
        unit = harness.unit("night/u0")
        timeline = Timeline()

        timeline.reconcile(harness.store)
        timeline.reconcile(harness.store)
        assert timeline.view(NOW, harness.clock.now()).sessions == [
            Bar("night/u0", None, "max-1", unit.started_at or 0.0)
        ]

        timeline.add([StoredEvent(1, started("night/u0", unit.started_at or 0.0))])  # its start was on its way
        timeline.add([StoredEvent(2, ended("night/u0", NOW + HOUR))])
        assert timeline.view(NOW, NOW + HOUR).sessions == [
            Bar("night/u0", OPUS, "max-1", unit.started_at or 0.0, NOW + HOUR, "done")
        ]


# -- levels -------------------------------------------------------------------------------------------


def test_the_limit_before_its_first_change_is_the_one_that_was_changed() -> None:
    platform: dict[str, object] = {"detected_limit": 2, "effective_cap": 2, "previous_cap": 3}
    timeline = drawn(
        [
            started("n/a", NOW),
            started("n/b", NOW + 10.0),
            Event("scope.limit_reduced", NOW + 20.0, OPUS, None, {"limit": 3, "previous": 4, "reduced_from": 4}),
            Event("scope.platform_limit", NOW + 30.0, OPUS, None, platform),
            Event("scope.limit_set", NOW + 40.0, OPUS, None, {"limit": None, "previous": 2}),
        ]
    )

    view = timeline.view(NOW, NOW + 60.0)

    assert points(view, OPUS) == [
        (NOW, 1, 4),
        (NOW + 10.0, 2, 4),
        (NOW + 20.0, 2, 3),
        (NOW + 30.0, 2, 2),
        (NOW + 40.0, 2, None),
        (NOW + 60.0, 2, None),
    ]
    assert [mark.detail for mark in view.marks] == [
        "limit reduced from 4 to 3",
        "the provider's own limit is 2",
        "limit set from 2 to unlimited",
    ]


def test_once_the_governor_is_sampled_its_count_is_what_is_drawn() -> None:
    governor = Governor(GovernorSettings(limits={"umans": 4, "runs": 50}), now=NOW)
    timeline = drawn([started("n/a", NOW - 60.0, "umans")])
    for number in range(3):
        governor.request(Ticket(f"t{number}", ("runs", "umans")), now=NOW)

    timeline.sample(NOW, governor.statuses(now=NOW))
    timeline.add([StoredEvent(2, ended("n/a", NOW + 1.0))])
    for number in range(3):
        governor.release(f"t{number}", now=NOW + 5.0)
    timeline.sample(NOW + 5.0, governor.statuses(now=NOW + 5.0))
    timeline.sample(NOW + 6.0, [])

    view = timeline.view(NOW - 60.0, NOW + 10.0)
    assert points(view, "umans") == [(NOW - 60.0, 1, 4), (NOW, 3, 4), (NOW + 5.0, 0, 4), (NOW + 10.0, 0, 4)]
    assert points(view, "runs") == [(NOW, 3, 50), (NOW + 5.0, 0, 50), (NOW + 10.0, 0, 50)]
    assert points(view, "sessions")[-1] == (NOW + 10.0, 0, None)


def test_a_view_begins_with_what_held_before_it() -> None:
    timeline = drawn([started("n/a", NOW), started("n/b", NOW + 100.0), ended("n/a", NOW + 200.0)])

    view = timeline.view(NOW + 150.0, NOW + 300.0)

    assert points(view, "sessions") == [(NOW + 150.0, 2, None), (NOW + 200.0, 1, None), (NOW + 300.0, 1, None)]
    assert [bar.unit for bar in view.sessions] == ["n/a", "n/b"]
    assert [bar.unit for bar in timeline.view(NOW + 250.0, NOW + 300.0).sessions] == ["n/b"]


def test_a_lone_peak_in_a_long_calm_stays() -> None:
    timeline = Timeline()
    governor = Governor(GovernorSettings(), now=NOW)
    governor.set_limit("umans", 100, now=NOW)
    (calm,) = governor.statuses(now=NOW)
    for second in range(20_000):
        busy = 90 if second == 7_777 else second % 2 + 1
        timeline.sample(NOW + second, [msgspec.structs.replace(calm, in_flight=busy)])

    view = timeline.view(NOW, NOW + 20_000.0)

    levels = points(view, "umans")
    assert len(levels) <= timelines.MOST_POINTS
    assert (NOW + 7_777, 90, 100) in levels
    assert levels[-1][1] == 19_999 % 2 + 1
    assert [at for at, _, _ in levels] == sorted({at for at, _, _ in levels})


# -- bounds -------------------------------------------------------------------------------------------


def test_of_too_many_the_longest_sessions_and_the_newest_marks_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timelines, "MOST_SESSIONS", 3)
    monkeypatch.setattr(timelines, "MOST_MARKS", 2)
    events = [started(f"n/{number}", NOW + number) for number in range(10)]
    events += [ended(f"n/{number}", NOW + 100.0 * (number % 7 + 1)) for number in range(9)]
    events += [
        Event("account.held", NOW + number, "anthropic/max-1", None, {"detail": str(number)}) for number in range(4)
    ]

    view = drawn(events).view(NOW, NOW + 1000.0)

    assert [bar.unit for bar in view.sessions] == ["n/5", "n/6", "n/9"]
    assert view.marks == [
        Mark(NOW + 2, "account_held", "anthropic/max-1", "2"),
        Mark(NOW + 3, "account_held", "anthropic/max-1", "3"),
    ]
    assert view.left_out == LeftOut(sessions=7, marks=2, series=0)


def test_scopes_without_end_are_charted_up_to_a_bound() -> None:
    timeline = drawn([started(f"n/{number}", NOW + number, f"provider-{number}") for number in range(1000)])

    view = timeline.view(NOW, NOW + 2000.0)

    assert len(view.series) == timelines.MOST_SERIES
    assert len(timeline._levels) == timelines.KEPT_LEVELS
    assert view.series[-1].scope == "sessions"
    assert view.left_out.series == timelines.KEPT_LEVELS - timelines.MOST_SERIES


def test_units_that_never_ran_and_events_of_other_kinds_leave_no_trace() -> None:
    timeline = drawn(
        [
            ended("n/a", NOW, "held"),
            Event("scope.paused", NOW, OPUS, None, {"until": NOW + 5.0, "cause": "platform_limit"}),
            Event("scope.resumed", NOW, OPUS),
            Event("control.limit", NOW, OPUS, None, {"limit": 3}),
            Event("engine.leading", NOW, None, None, {"owner": "me"}),
        ]
    )

    assert timeline.view(NOW, NOW + 10.0) == TimelineView(NOW, NOW + 10.0, [], [], [], LeftOut())


def test_a_start_of_a_unit_that_seems_to_run_ends_its_last_bar() -> None:
    view = drawn([started("n/a", NOW), started("n/a", NOW + 50.0)]).view(NOW, NOW + 60.0)

    assert [(bar.started_at, bar.ended_at, bar.ending) for bar in view.sessions] == [
        (NOW, NOW + 50.0, "lost"),
        (NOW + 50.0, None, None),
    ]
    assert points(view, "sessions")[-1][1] == 1


# -- where to begin -------------------------------------------------------------------------------------


@pytest.mark.parametrize("trimmed", [0, 40])
def test_the_place_of_a_time_is_found_by_halving(trimmed: int) -> None:
    store = SqliteStore.in_memory()
    last = store.append_events([Event("scope.resumed", NOW + number // 3, "a") for number in range(100)])
    store.trim_events(keep=100 - trimmed)

    for seconds in (-1.0, 0.0, 0.5, 7.0, 20.0, 33.0, 34.0):
        after = last_id_before(store, NOW + seconds, last)

        younger = [stored.id for stored in store.events() if stored.event.at >= NOW + seconds]
        assert [stored.id for stored in store.events(after=after)] == younger
    assert last_id_before(SqliteStore.in_memory(), NOW, 0) == 0
