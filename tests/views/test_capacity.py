"""Rows of scopes: which ones there are, in which order, and where their limits come from."""

import pytest
from tests.views.fleets import NOW, Fleet

from paceline.core import Ticket
from paceline.core.signals import Budget
from paceline.store import Campaign, ClientKey
from paceline.views.capacity import ScopeKind, capacity_rows, kind_of, limit_rows


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
