"""Campaigns: their counts, when they are finished, and how fast they get done."""

from tests.views.fleets import NOW, Fleet

from paceline.core.signals import QuotaClosed
from paceline.events import Event
from paceline.store import Campaign, SqliteStore, UnitCounts
from paceline.store.interface import CampaignState
from paceline.views.status import CompletionRate, Throughput, campaign_summary, campaign_views


def test_an_active_campaign_without_anything_left_is_finished() -> None:
    cases: list[tuple[CampaignState, UnitCounts]] = [
        ("active", UnitCounts(done=2, held=1)),
        ("active", UnitCounts(todo=1)),
        ("active", UnitCounts(running=1)),
        ("paused", UnitCounts(done=2)),
        ("cancelled", UnitCounts(cancelled=2)),
    ]
    shown = [campaign_summary(Campaign(name="docs", state=state), counts).shown_state for state, counts in cases]

    assert shown == ["finished", "active", "active", "paused", "cancelled"]


def test_throughput_counts_for_active_campaigns_and_quota_while_something_is_left() -> None:
    fleet = Fleet(accounts=["max-1"])
    fleet.add(Campaign(name="docs", accounts=("max-1",)), "a", "b")
    fleet.add(Campaign(name="idle", state="paused"), "a")
    fleet.add(Campaign(name="empty", accounts=("max-1",)))
    fleet.store.append_events(
        [Event("unit.started", NOW - 100, None, "docs/z", {}), Event("unit.done", NOW - 50, None, "docs/z", {})]
    )
    signal = QuotaClosed(resets_at=NOW + 3600, window="5h", confidence=1.0)
    fleet.governor.report("anthropic/max-1", signal, now=NOW)
    throughput = Throughput(fleet.store)
    throughput.catch_up(NOW)

    views = campaign_views(fleet.read(), throughput)

    quota = "quota spent on max-1, resumes about 01:00"
    assert [(view.id, view.throughput, view.eta, view.finished, view.quota) for view in views] == [
        ("docs", 1, NOW + 200, False, quota),
        ("idle", 0, None, False, None),
        ("empty", 0, None, True, None),
    ]


def test_a_campaign_that_ended_long_ago_does_not_slow_the_one_that_runs() -> None:
    store = SqliteStore.in_memory()
    store.append_events(
        [
            Event(name="unit.started", at=1000.0, unit="old/a"),
            Event(name="unit.done", at=1010.0, unit="old/a"),
            Event(name="unit.started", at=3000.0, unit="new/a"),
            Event(name="unit.done", at=3010.0, unit="new/a"),
        ]
    )
    throughput = Throughput(store)
    throughput.catch_up(3010.0)

    assert throughput.rate({"new": 5}, 3010.0, "new") == CompletionRate(per_hour=1, pace=60.0, eta=3060.0)
    assert throughput.rate({"old": 0, "new": 5}, 3010.0) == CompletionRate(
        per_hour=2, pace=2 * 3600.0 / 2010.0, eta=3060.0
    )


def test_what_waits_behind_another_campaign_is_counted_at_the_speed_of_that() -> None:
    store = SqliteStore.in_memory()
    store.append_events(
        [Event(name="unit.started", at=1000.0, unit="first/a"), Event(name="unit.done", at=1010.0, unit="first/a")]
    )
    throughput = Throughput(store)
    throughput.catch_up(1010.0)

    assert throughput.rate({"first": 1, "second": 3}, 1010.0) == CompletionRate(per_hour=1, pace=60.0, eta=1050.0)
    assert throughput.rate({"first": 0, "second": 3}, 1010.0) == CompletionRate(per_hour=1, pace=60.0, eta=None)


def test_the_rest_is_never_done_before_the_next_parked_unit_resumes() -> None:
    rate = CompletionRate(per_hour=10, pace=10.0, eta=1000.0)

    assert [rate.eta_after(at) for at in (None, 900.0, 5000.0)] == [1000.0, 1000.0, 5000.0]
    assert CompletionRate(per_hour=0, pace=0.0, eta=None).eta_after(5000.0) is None
