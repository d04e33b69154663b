"""The sentence about a spent quota: whose it is, and when it is believed to be back."""

import pytest
from tests.views.fleets import NOW, Fleet

from paceline.core.signals import QuotaClosed
from paceline.store import Campaign
from paceline.views.quota import quota_line, scope_windows

HOUR = 3600.0
DAY = 24 * HOUR


def line(fleet: Fleet, campaign: Campaign) -> str | None:
    return quota_line(fleet.read(), campaign)


@pytest.mark.parametrize(
    ("after", "shown"),
    [(2.5 * HOUR, "02:30"), (DAY + HOUR, "Mon 01:00"), (9 * DAY, "2026-11-24 00:00")],
    ids=["today", "this week", "later"],
)
def test_the_day_is_named_where_it_is_not_today(after: float, shown: str) -> None:
    fleet = Fleet(accounts=["max-1"])
    fleet.governor.report("anthropic/max-1", QuotaClosed(resets_at=NOW + after, window="5h", confidence=1.0), now=NOW)

    assert line(fleet, Campaign(name="docs", accounts=("max-1",))) == f"quota spent on max-1, resumes about {shown}"


def test_with_several_accounts_the_first_that_is_back_counts() -> None:
    fleet = Fleet(accounts=["max-1", "max-2", "max-3"])
    for name, hours in (("max-1", 5), ("max-2", 3)):
        signal = QuotaClosed(resets_at=NOW + hours * HOUR, window="5h", confidence=1.0)
        fleet.governor.report(f"anthropic/{name}", signal, now=NOW)

    campaign = Campaign(name="docs", accounts=("max-1", "max-2", "max-3"))

    assert line(fleet, campaign) == "quota spent on max-1, max-2, resumes about 03:00"


def test_a_window_of_the_model_counts_for_campaigns_of_that_model_only() -> None:
    fleet = Fleet(accounts=["max-1"])
    signal = QuotaClosed(resets_at=NOW + HOUR, window="weekly", confidence=1.0)
    fleet.governor.report("anthropic/max-1/opus-4-6", signal, now=NOW)

    opus = Campaign(name="docs", accounts=("max-1",), model="opus-4-6")
    sonnet = Campaign(name="docs", accounts=("max-1",), model="sonnet-4-6")

    assert line(fleet, opus) == "quota spent on max-1, resumes about 01:00"
    assert line(fleet, sonnet) is None


def test_a_campaign_without_accounts_uses_the_quota_of_its_agents_login() -> None:
    fleet = Fleet()
    signal = QuotaClosed(resets_at=NOW + HOUR, window="5h", confidence=1.0)
    fleet.governor.report("openai/default", signal, now=NOW)

    assert line(fleet, Campaign(name="docs", agent="codex")) == "quota spent on openai/default, resumes about 01:00"


def test_every_window_is_listed_with_its_scope() -> None:
    fleet = Fleet()
    for window in ("5h", "weekly"):
        fleet.governor.report("anthropic/max-1", QuotaClosed(resets_at=NOW + HOUR, window=window), now=NOW)

    windows = scope_windows(fleet.governor.statuses(now=NOW))

    assert [(window.scope, window.name, window.state) for window in windows] == [
        ("anthropic/max-1", "5h", "closed"),
        ("anthropic/max-1", "weekly", "closed"),
    ]
