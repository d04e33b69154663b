"""Campaigns: their counts, when they are finished, and how fast they get done."""

from tests.views.fleets import NOW, Fleet

from paceline.core.signals import QuotaClosed
from paceline.events import Event
from paceline.store import Campaign, UnitCounts
from paceline.store.interface import CampaignState
from paceline.views.campaigns import campaign_summary, campaign_views
from paceline.views.throughput import Throughput


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
