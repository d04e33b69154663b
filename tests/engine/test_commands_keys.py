"""Creating and revoking keys: what is checked, and what is stored together."""

from pathlib import Path
from typing import Any

import pytest

from paceline.agents.account import Account
from paceline.core import Governor
from paceline.core.values.settings import Rate
from paceline.engine.command_log import CommandReader, carry_out
from paceline.engine.commands import KeyRequest, create_key, digest_of_key, parse_budget, revoke_key
from paceline.errors import IllegalStep, InvalidInput, UnknownName
from paceline.settings import Settings
from paceline.store import ClientKey, HashedKey, KeyBudget, SqliteStore

NOW = 1_800_000_000.0


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    work = Account(name="work", provider="openai", kind="metered", key_env="WORK_KEY")
    own = Account(name="max-1", provider="anthropic", kind="subscription")
    return Settings(home=tmp_path, store_url="sqlite://", accounts={"work": work, "max-1": own})


def test_a_key_is_stored_hashed_with_its_event_and_its_limits(settings: Settings) -> None:
    store = SqliteStore.in_memory()
    request = KeyRequest(
        name="team",
        pool="work",
        models=("claude-opus-4-6-20260105", "gpt-*"),
        rpm=60,
        parallel=4,
        weight=2,
        budget="$1,000.50/month",
    )

    created, text = create_key(store, settings, request, now=NOW)

    record = ClientKey(
        name="team",
        pool="work",
        models=("opus-4-6", "gpt-*"),
        rpm=60,
        parallel=4,
        weight=2.0,
        budget=KeyBudget(1000.5, "month"),
        created_at=NOW,
    )
    assert created == record
    assert text.startswith("pk-paceline-")
    assert len(text) == len("pk-paceline-") + 43
    assert store.client_keys() == [HashedKey(record, digest_of_key(text.encode()))]
    events = [each.event for each in store.events()]
    assert [(each.name, each.scope) for each in events] == [("key.created", "key:team")]
    assert text not in repr(events)


def test_the_limits_of_a_key_reach_a_running_engine_and_end_with_the_key(settings: Settings) -> None:
    store, governor = SqliteStore.in_memory(), Governor(now=NOW)
    create_key(store, settings, KeyRequest(name="team", parallel=4, rpm=60), now=NOW)
    reader = CommandReader(store)
    for command in reader.read():
        carry_out(governor, command.event, NOW)
    reader.done()
    limit, rates = governor.get_limit("key:team"), governor.snapshot().rates

    revoke_key(store, "team", now=NOW + 1)
    for command in reader.read():
        carry_out(governor, command.event, NOW + 1)

    assert (limit, rates) == (4, {"key:team": Rate(rpm=60)})
    assert (governor.get_limit("key:team"), governor.snapshot().rates) == (None, {})


def test_two_keys_cannot_have_one_name(settings: Settings) -> None:
    store = SqliteStore.in_memory()
    create_key(store, settings, KeyRequest(name="team"), now=NOW)
    before = store.append_events([])

    with pytest.raises(IllegalStep, match="there is a key 'team' already; choose another name, or revoke it first"):
        create_key(store, settings, KeyRequest(name="team", parallel=3), now=NOW)

    assert (store.append_events([]), len(store.client_keys())) == (before, 1)


def test_a_key_that_is_not_there_is_not_revoked(settings: Settings) -> None:
    store = SqliteStore.in_memory()
    create_key(store, settings, KeyRequest(name="team"), now=NOW)
    with pytest.raises(UnknownName, match="there is no key 'taem'; did you mean"):
        revoke_key(store, "taem", now=NOW)


def test_all_mistakes_of_a_key_are_named_at_once(settings: Settings) -> None:
    with pytest.raises(InvalidInput) as found:
        create_key(SqliteStore.in_memory(), settings, KeyRequest(name="a/b", rpm=0, budget="5"), now=NOW)

    parts = ("'a/b' cannot name a key", "rpm must be a whole number", "budget '5' must be dollars")
    assert [part in str(found.value) for part in parts] == [True, True, True]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (KeyRequest(name=""), "cannot name a key"),
        (KeyRequest(name="a/b"), "'a/b' cannot name a key"),
        (KeyRequest(name="a" * 64), "cannot name a key"),
        (KeyRequest(name="a", pool="wrok"), "no account or pool 'wrok'; did you mean \"work\"\\? It has: work$"),
        (KeyRequest(name="a", pool="max-1"), "^max-1 is a subscription, and the gateway takes API keys only"),
        (KeyRequest(name="a", models=("",)), "'' is not the name of a model"),
        (KeyRequest(name="a", models=("x y",)), "'x y' is not the name of a model"),
        (KeyRequest(name="a", models=("m",) * 1001), "1000 models at most"),
        (
            KeyRequest(name="a", rpm=0),
            "rpm must be a whole number from 1 to 1000000000, or left out for none; got 0",
        ),
        (KeyRequest(name="a", tpm=-1), "tpm must be a whole number from 1 to 1000000000"),
        (
            KeyRequest(name="a", parallel=0),
            "parallel must be a whole number from 1 to 1000000000, or left out for none; got 0",
        ),
        (KeyRequest(name="a", weight=0.0), "weight must be a number from 0.001"),
        (KeyRequest(name="a", priority_max=10_000), "priority_max must be a whole number from -9999 to 9999"),
        (
            KeyRequest(name="a", budget="50"),
            r"budget .50. must be dollars above 0 per day, per month or in all: .\$5/day",
        ),
        (KeyRequest(name="a", budget="$0"), "budget .\\$0. must be dollars above 0"),
        (KeyRequest(name="a", budget="$5/week"), "budget .\\$5/week. must be"),
    ],
)
def test_a_wrong_value_is_named_and_changes_nothing(settings: Settings, request_: KeyRequest, message: str) -> None:
    store = SqliteStore.in_memory()
    with pytest.raises(InvalidInput, match=message):
        create_key(store, settings, request_, now=NOW)
    assert (store.client_keys(), store.events()) == ([], [])


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("$50/month", KeyBudget(50.0, "month")),
        (" $5.5/day ", KeyBudget(5.5, "day")),
        ("$100", KeyBudget(100.0, "total")),
    ],
)
def test_a_budget_is_read_as_people_write_it_and_written_back(text: str, budget: KeyBudget) -> None:
    assert parse_budget(text) == budget
    assert parse_budget(budget.text) == budget


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        ({"models": ("gpt-5",)}, "--models"),
        ({"budget": "$5", "tpm": 100}, "--budget and --tpm"),
    ],
)
def test_a_key_for_all_paths_cannot_have_rules_that_these_would_bypass(
    settings: Settings, rules: dict[str, Any], named: str
) -> None:
    store = SqliteStore.in_memory()

    with pytest.raises(InvalidInput, match=f"^--all-paths cannot be combined with {named}: batches and stored"):
        create_key(store, settings, KeyRequest(name="team", all_paths=True, **rules), now=NOW)

    assert store.client_keys() == []
    created, _ = create_key(store, settings, KeyRequest(name="team", all_paths=True, rpm=5), now=NOW)
    assert (created.all_paths, created.rpm) == (True, 5)
