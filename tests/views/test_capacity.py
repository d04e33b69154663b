"""Rows of scopes: which ones there are, in which order, and where their limits come from."""

import pytest
from tests.views.fleets import NOW, Fleet

from paceline.core import Ticket
from paceline.core.signals import Budget, QuotaClosed
from paceline.core.unit_lifecycle import AttemptOutcome, Policy, transition_after
from paceline.store import Campaign, ClientKey, OutcomeRecord
from paceline.views.capacity import ScopeKind, capacity_rows, kind_of, limit_rows, quota_line, scope_windows
from paceline.views.status import read_status_summary


@pytest.mark.parametrize(
    ("scope", "kind"),
    [
        ("sessions", "pool"),
        ("runs", "pool"),
        ("anthropic", "provider"),
        ("anthropic/max-1", "account"),
        ("anthropic/max-1/opus-4-6", "model"),
        ("anthropic/*/opus-*", "model"),
        ("agent:codex", "agent"),
        ("campaign:docs", "campaign"),
    ],
)
def test_the_kind_of_a_scope_is_seen_from_its_name(scope: str, kind: ScopeKind) -> None:
    assert kind_of(scope) == kind


def test_accounts_that_were_never_used_have_rows_next_to_their_provider() -> None:
    fleet = Fleet(accounts=["max-1"])
    fleet.add(Campaign(name="docs", max_sessions=2))
    fleet.governor.set_limit("campaign:docs", 2, now=NOW)
    fleet.governor.set_limit("agent:claude", 3, now=NOW)

    rows = capacity_rows(fleet.read())

    assert [row.scope for row in rows] == [
        "runs",
        "sessions",
        "anthropic",
        "anthropic/max-1",
        "agent:claude",
        "campaign:docs",
    ]


def test_a_scope_that_only_has_a_limit_has_its_provider_above_it() -> None:
    fleet = Fleet()
    fleet.governor.set_limit("openai/team", 2, now=NOW)

    rows = [(row.scope, row.kind, row.limit) for row in capacity_rows(fleet.read()) if row.scope.startswith("openai")]

    assert rows == [("openai", "provider", None), ("openai/team", "account", 2)]


def test_limits_list_every_configured_entry_first_and_then_scopes_with_news() -> None:
    fleet = Fleet()
    fleet.governor.set_limit("acme", 3, now=NOW)
    fleet.governor.request(Ticket("t1", ("runs", "other")), now=NOW)
    fleet.governor.report("quiet/key", Budget(used_ratio=0.4, window="5h"), now=NOW)
    fleet.governor.request(Ticket("t2", ("runs", "idle")), now=NOW)
    fleet.governor.release("t2", now=NOW)

    rows = limit_rows(fleet.read(NOW + 60))

    assert [(row.scope, row.configured_source) for row in rows] == [
        ("sessions", "shipped"),
        ("runs", "shipped"),
        ("anthropic/*/opus-*", "shipped"),
        ("anthropic/*/sonnet-*", "shipped"),
        ("acme", "live"),
        ("other", ""),
        ("quiet/key", ""),
    ]


def test_a_pattern_that_is_set_live_is_live_and_scopes_under_it_name_it() -> None:
    fleet = Fleet()
    fleet.governor.set_limit("anthropic/*/opus-*", 9, now=NOW)
    fleet.governor.request(Ticket("t1", ("runs", "anthropic/max-1/opus-4-6")), now=NOW)

    rows = {row.scope: (row.limit, row.configured_source, row.configured_by) for row in limit_rows(fleet.read())}

    assert rows["anthropic/*/opus-*"] == (9, "live", "anthropic/*/opus-*")
    assert rows["anthropic/max-1/opus-4-6"] == (9, "pattern", "anthropic/*/opus-*")


def test_a_released_slot_is_cooling_and_not_in_flight() -> None:
    fleet = Fleet()
    fleet.governor.set_limit("acme", 3, now=NOW)
    fleet.governor.set_cooldown("acme", 30.0, now=NOW)
    for ticket in ("t1", "t2"):
        fleet.governor.request(Ticket(ticket, ("runs", "acme")), now=NOW)
    fleet.governor.release("t1", now=NOW)

    (row,) = [row for row in capacity_rows(fleet.read()) if row.scope == "acme"]

    assert (row.in_flight, row.cooling) == (1, 1)


def test_a_clients_key_is_no_provider() -> None:
    assert [kind_of(scope) for scope in ("key:team", "anthropic", "host:box1")] == ["key", "provider", "host"]


def test_a_revoked_key_has_no_row_once_its_last_call_has_ended() -> None:
    fleet = Fleet()
    for name in ("here", "gone"):
        fleet.store.create_client_key(ClientKey(name=name), name)
        fleet.governor.request(Ticket(name, ("runs", f"key:{name}")), now=NOW)
    fleet.governor.release("here", now=NOW)
    fleet.store.revoke_client_key("gone", now=NOW)

    busy = [row.scope for row in capacity_rows(fleet.read()) if row.kind == "key"]
    fleet.governor.release("gone", now=NOW)
    quiet = fleet.read()

    assert busy == ["key:gone", "key:here"]
    assert [row.scope for row in capacity_rows(quiet) if row.kind == "key"] == ["key:here"]
    assert "key:gone" not in [row.scope for row in limit_rows(quiet)]


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


def park(fleet: Fleet, campaign: str, units: int, account: str, resume_at: float) -> None:
    """Park the next units of the campaign until then."""
    names = [f"{campaign}-{number}" for number in range(units)]
    claimed = fleet.store.claim_units(campaign, account, units, attempt_ids=names, lease_until=NOW + 60, now=NOW)
    outcome = AttemptOutcome(ending="parked", reason="the 5h window is spent", resume_at=resume_at)
    changes = [transition_after(unit.counters, outcome, Policy(), NOW) for unit in claimed]
    records = [
        OutcomeRecord(unit_id=unit.id, fence=unit.fence, transition=change)
        for unit, change in zip(claimed, changes, strict=True)
    ]
    fleet.store.record_outcomes(records, now=NOW)


def test_the_next_resume_is_the_believed_reset_and_not_the_try_before_it() -> None:
    fleet = Fleet(accounts=["max-1"])
    docs = fleet.add(Campaign(name="docs", accounts=("max-1",)), "a")
    signal = QuotaClosed(resets_at=NOW + 2 * HOUR, window="5h", confidence=0.5)
    fleet.governor.report("anthropic/max-1", signal, now=NOW)
    (window,) = scope_windows(fleet.governor.statuses(now=NOW))
    assert window.probe_at is not None
    assert window.probe_at < NOW + 2 * HOUR
    park(fleet, "docs", 1, "max-1", window.probe_at)

    assert read_status_summary(fleet.read(), None, None).next_resume_at == NOW + 2 * HOUR
    assert line(fleet, docs) == "quota spent on max-1, resumes about 02:00"


def test_a_unit_that_is_parked_without_a_spent_window_resumes_at_its_own_time() -> None:
    fleet = Fleet(accounts=["max-1", "max-2"])
    fleet.add(Campaign(name="docs", accounts=("max-1",)), "a")
    fleet.add(Campaign(name="tests", accounts=("max-2",)), "b")
    park(fleet, "docs", 1, "max-1", NOW + 2 * HOUR)
    park(fleet, "tests", 1, "max-2", NOW + HOUR)
    signal = QuotaClosed(resets_at=NOW + 2 * HOUR, window="5h", confidence=1.0)
    fleet.governor.report("anthropic/max-1", signal, now=NOW)

    assert read_status_summary(fleet.read(), None, None).next_resume_at == NOW + HOUR


def test_every_window_is_listed_with_its_scope() -> None:
    fleet = Fleet()
    for window in ("5h", "weekly"):
        fleet.governor.report("anthropic/max-1", QuotaClosed(resets_at=NOW + HOUR, window=window), now=NOW)

    windows = scope_windows(fleet.governor.statuses(now=NOW))

    assert [(window.scope, window.name, window.state) for window in windows] == [
        ("anthropic/max-1", "5h", "closed"),
        ("anthropic/max-1", "weekly", "closed"),
    ]
