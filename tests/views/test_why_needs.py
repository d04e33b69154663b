"""What waits for a person: each thing once, with the action that settles it."""

from collections.abc import Mapping

import msgspec
from tests.views.fleets import NOW, Fleet

from paceline.agents.account import Account
from paceline.core.signals import AuthFailed, BillingStop, QuotaClosed, RateLimited
from paceline.core.values.tickets import Ticket
from paceline.settings import KeyPoolSettings
from paceline.store import Balances, Campaign, SpendRow, StoppedUnits
from paceline.views.capacity import AccountBudget, AccountView, KeyView, account_views, capacity_rows
from paceline.views.gateway_calls import MemberFailure
from paceline.views.why import Need, NeedSources, by_reason, needs


def read_needs(fleet: Fleet) -> list[Need]:
    state = fleet.read()
    stopped = fleet.store.stopped_units(limit=100)
    return needs(NeedSources(now=NOW, rows=capacity_rows(state), stopped=stopped, campaigns=state.campaigns))


def test_a_calm_fleet_needs_nobody() -> None:
    fleet = Fleet(accounts=["max-1"])
    fleet.add(Campaign(name="docs"), "a", "b")

    assert read_needs(fleet) == []


def test_held_accounts_come_first_and_limits_that_stay_reduced_last() -> None:
    fleet = Fleet(accounts=["max-1", "max-2"])
    fleet.governor.set_headroom("anthropic", "one-way", now=NOW)
    fleet.add(Campaign(name="docs"), "a", "b")
    fleet.add(Campaign(name="tests", state="paused", pause_reason="5 units failed in a row"), "c")
    fleet.store.move_units(["docs/a", "docs/b"], "held", "its agent was denied a tool", now=NOW)
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


def test_what_settles_itself_needs_nobody() -> None:
    fleet = Fleet(accounts=["max-1", "max-2", "max-3"])
    for number in range(4):
        fleet.governor.request(Ticket(f"t{number}", ("anthropic", "anthropic/max-2")), now=NOW)
    fleet.governor.report("anthropic/max-1", AuthFailed(detail="401"), now=NOW)
    fleet.governor.report("anthropic/max-2", RateLimited(ticket="t3"), now=NOW)
    fleet.governor.report("anthropic/max-3", QuotaClosed(resets_at=NOW + 600, window="5h"), now=NOW)
    scopes = fleet.read().scopes

    assert (scopes["anthropic/max-1"].paused_reason, scopes["anthropic/max-2"].auto_reduced) == ("auth", True)
    assert read_needs(fleet) == []


def test_a_login_that_is_missing_needs_a_person() -> None:
    fleet = Fleet(accounts=["max-1"])
    fleet.governor.report("anthropic/max-1", AuthFailed(detail="Please run /login", is_missing=True), now=NOW)

    assert [(each.kind, each.detail) for each in read_needs(fleet)] == [("held_scope", "Please run /login")]


def test_a_limit_that_stays_reduced_needs_nobody_where_the_account_hides_it() -> None:
    fleet = Fleet(accounts=["key-a"])
    fleet.governor.set_headroom("anthropic", "one-way", now=NOW)
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

    assert needs(NeedSources(now=NOW, keys=keys)) == [
        Need(
            kind="reached_budget",
            title="the budget of the key trial is reached",
            detail="it has spent $5.25 of $5/day; its calls are refused",
            action="none",
            target="trial",
            until=NOW + 60,
        )
    ]


TEAM = KeyPoolSettings(name="team", accounts=("key-a", "key-b"))
FAILURE = MemberFailure(
    account="key-a", scope="anthropic/key-a", pools=("team",), kind="unreachable", detail="no connection",
    since=NOW - 150, last_at=NOW - 10, calls=7, retry_at=NOW + 150,
)  # fmt: skip


def pool_needs(fleet: Fleet, *failures: MemberFailure, environ: Mapping[str, str]) -> list[Need]:
    state = fleet.read()
    members = [Account(name=name, provider="anthropic", kind="metered", key_env=name) for name in TEAM.accounts]
    accounts = account_views(members, environ, {}, Balances(), NOW)
    found = needs(NeedSources(now=NOW, rows=capacity_rows(state), accounts=accounts, pools=[TEAM], failures=failures))
    return [each for each in found if each.kind not in ("held_scope", "missing_key")]


KEYS = {"key-a": "1", "key-b": "2"}


def test_an_account_of_a_pool_that_fails_for_minutes_needs_a_person() -> None:
    fleet = Fleet(accounts=["key-a", "key-b"])
    brief = msgspec.structs.replace(FAILURE, since=NOW - 100)

    assert pool_needs(fleet, brief, environ=KEYS) == []
    assert pool_needs(fleet, FAILURE, environ=KEYS) == [
        Need(
            kind="failing_account",
            title="key-a of the pool team cannot be reached",
            detail="7 calls failed there (no connection), and may go to another account",
            action="none",
            target="key-a",
            since=NOW - 150,
            tried_at=NOW + 150,
        )
    ]


def test_a_refused_account_whose_hold_or_spent_quota_is_shown_is_not_reported_twice() -> None:
    refused = msgspec.structs.replace(FAILURE, kind="refused", detail="status 429", retry_at=None)
    held, spent = Fleet(accounts=["key-a"]), Fleet(accounts=["key-a"])
    held.governor.report("anthropic/key-a", BillingStop(detail="the card was declined"), now=NOW)
    spent.governor.report("anthropic/key-a", QuotaClosed(resets_at=NOW + 600, window="5h"), now=NOW)

    (need,) = pool_needs(Fleet(accounts=["key-a"]), refused, environ=KEYS)

    assert (need.kind, need.title) == ("failing_account", "key-a of the pool team refuses its calls")
    assert [pool_needs(each, refused, environ=KEYS) for each in (held, spent)] == [[], []]


def test_a_pool_without_an_account_that_can_serve_is_reported_at_once() -> None:
    fleet = Fleet(accounts=["key-a", "key-b"])
    brief = msgspec.structs.replace(FAILURE, since=NOW - 5)
    fleet.governor.report("anthropic/key-b", BillingStop(detail="the card was declined"), now=NOW)
    expected = Need(
        kind="idle_pool",
        title="no account of the pool team can serve",
        detail="key-a: no connection; key-b: held: the card was declined",
        action="none",
        target="team",
        since=NOW - 5,
        tried_at=NOW + 150,
    )

    assert pool_needs(fleet, brief, environ=KEYS) == [expected]
    assert pool_needs(fleet, FAILURE, environ=KEYS) == [msgspec.structs.replace(expected, since=NOW - 150)]
    (unset,) = pool_needs(fleet, environ={"key-b": "2"})
    assert unset.detail == "key-a: key-a is not set; key-b: held: the card was declined"


def test_a_login_is_reported_a_week_before_its_end_and_after_it() -> None:
    def expiring(left: float) -> AccountView:
        account = Account(name="max-1", provider="openai", kind="subscription", expires=NOW + left)
        return account_views([account], {}, {}, Balances(), NOW)[0]

    def found(left: float) -> list[Need]:
        return needs(NeedSources(now=NOW, accounts=[expiring(left)]))

    soon = Need(
        kind="expiring_login",
        title="the login of max-1 expires in 7 days",
        detail="get a new login, then change accounts.max-1.expires",
        action="none",
        target="max-1",
    )
    over = msgspec.structs.replace(soon, title="the login of max-1 has expired", since=NOW - 60)

    assert [found(left) for left in (8 * 86400, 7 * 86400, -60)] == [[], [soon], [over]]


def test_an_account_whose_budget_is_reached_says_until_when_its_calls_are_refused() -> None:
    account = Account(name="work", provider="anthropic", kind="metered", daily_budget=5.0)
    rows = [
        SpendRow(day="2023-11-14", key="", account=name, model="m", billed=dollars)
        for name, dollars in (("work", 3.0), ("other", 9.0), ("work", 1.5))
    ]

    def seen(*more: SpendRow) -> AccountView:
        (found,) = account_views([account], {}, {}, Balances((*rows, *more)), 1_700_000_000.0)
        return found

    near, reached = seen(), seen(msgspec.structs.replace(rows[0], billed=0.5))

    expected = AccountBudget(budget="$5/day", spent=4.5, is_near=True, is_reached=False, resumes_at=None)
    assert near.daily_budget == expected
    assert needs(NeedSources(now=NOW, accounts=[near])) == []
    (need,) = needs(NeedSources(now=NOW, accounts=[reached]))
    assert (need.kind, need.title, need.target) == (
        "reached_budget",
        "the budget of the account work is reached",
        "work",
    )
    assert (need.detail, need.until) == ("it has spent $5.00 of $5/day; its calls are refused", 1_700_006_400.0)


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


def test_a_store_that_cannot_be_used_is_the_first_thing_to_settle() -> None:
    paused = Campaign(name="docs", state="paused", pause_reason="its check cannot start")

    found = needs(NeedSources(now=NOW, trouble="the disk is full", campaigns=[paused]))

    assert [(each.kind, each.detail) for each in found] == [
        ("store_outage", "the disk is full"),
        ("paused_campaign", "its check cannot start"),
    ]
