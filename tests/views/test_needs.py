"""What waits for a person: each thing once, with the action that settles it."""

import msgspec
from tests.views.fleets import NOW, Fleet

from paceline.core.signals import BillingStop, RateLimited
from paceline.core.values.tickets import Ticket
from paceline.store import Campaign, StoppedUnits
from paceline.views.capacity import capacity_rows
from paceline.views.keys import KeyView
from paceline.views.needs import Need, by_reason, needs


def read_needs(fleet: Fleet) -> list[Need]:
    state = fleet.read()
    return needs(capacity_rows(state), fleet.store.stopped_units(limit=100), state.campaigns, [])


def test_a_calm_fleet_needs_nobody() -> None:
    fleet = Fleet(accounts=["max-1"])
    fleet.add(Campaign(name="docs"), "a", "b")

    assert read_needs(fleet) == []


def test_held_accounts_come_first_and_learnt_limits_last() -> None:
    fleet = Fleet(accounts=["max-1", "max-2"])
    fleet.add(Campaign(name="docs"), "a", "b")
    fleet.add(Campaign(name="tests", state="paused", pause_reason="5 units failed in a row"), "c")
    fleet.store.hold_units(["docs/a", "docs/b"], "its agent was denied a tool", now=NOW)
    fleet.governor.set_limit("anthropic/max-2", 4, now=NOW)
    for number in range(4):
        fleet.governor.request(Ticket(f"t{number}", ("anthropic", "anthropic/max-2")), now=NOW)
    fleet.governor.report("anthropic/max-2", RateLimited(ticket="t3"), now=NOW)
    fleet.governor.report("anthropic/max-1", BillingStop(detail="the card was declined"), now=NOW)

    found = read_needs(fleet)

    assert [(need.kind, need.action, need.target, need.units) for need in found] == [
        ("held_scope", "restore", "anthropic/max-1", 0),
        ("stopped_units", "retry", "docs/a", 2),
        ("paused_campaign", "resume", "tests", 0),
        ("learnt_limit", "restore", "anthropic/max-2", 0),
    ]
    assert [need.title for need in found[:3]] == [
        "anthropic/max-1 is held",
        "2 units of docs are held",
        "tests paused itself",
    ]
    assert found[0].detail == "the card was declined"


def test_a_learnt_limit_that_the_account_hides_needs_nobody() -> None:
    fleet = Fleet(accounts=["key-a"])
    path = ("anthropic", "anthropic/key-a", "anthropic/key-a/sonnet-4-5")
    for number in range(4):
        fleet.governor.request(Ticket(f"t{number}", path), now=NOW)
    fleet.governor.set_limit("anthropic/key-a/sonnet-4-5", 6, now=NOW)
    fleet.governor.report("anthropic/key-a/sonnet-4-5", RateLimited(ticket="t3"), now=NOW)
    (learnt,) = read_needs(fleet)

    fleet.governor.set_limit("anthropic/key-a", 3, now=NOW)

    assert (learnt.kind, learnt.target) == ("learnt_limit", "anthropic/key-a/sonnet-4-5")
    assert read_needs(fleet) == []


def test_a_key_whose_budget_is_reached_says_until_when_its_calls_are_refused() -> None:
    rules = KeyView(
        name="trial", pool=None, models=(), rpm=None, tpm=None, parallel=None, priority_max=0, weight=1.0,
        budget="$5/day", all_paths=False, created_at=NOW,
    )  # fmt: skip
    keys = [
        msgspec.structs.replace(rules, name="other", spent=1.0),
        msgspec.structs.replace(rules, spent=5.25, is_reached=True, resumes_at=NOW + 60),
    ]

    assert needs([], [], [], [], [], keys) == [
        Need(
            kind="reached_budget",
            title="the budget of the key trial is reached",
            detail="it has spent $5.25 of $5/day; its calls are refused",
            action="none",
            target="trial",
            until=NOW + 60,
        )
    ]


def test_reasons_that_differ_only_in_numbers_are_one() -> None:
    groups = [
        StoppedUnits(campaign="docs", state="quarantined", reason="exit code 3: line 17", units=2, example="docs/a"),
        StoppedUnits(campaign="docs", state="quarantined", reason="exit code 3: line 4", units=1, example="docs/b"),
        StoppedUnits(campaign="docs", state="held", reason="exit code 3: line 4", units=1, example="docs/c"),
        StoppedUnits(campaign="docs", state="quarantined", reason="time is up", units=9, example="docs/d"),
    ]

    found = by_reason(groups)

    assert [(each.state, each.reason, each.units, each.example) for each in found] == [
        ("quarantined", "time is up", 9, "docs/d"),
        ("quarantined", "exit code 3: line 17", 3, "docs/a"),
        ("held", "exit code 3: line 4", 1, "docs/c"),
    ]
