"""The limits of a client's key belong to the key: a reset and a lost state return to them."""

from pathlib import Path

import pytest

from paceline.core import GovernorSettings
from paceline.core.values.settings import Rate
from paceline.engine import commands
from paceline.engine.capacity.governor_state import GOVERNOR_STATE, load_governor, set_aside_unreadable
from paceline.engine.commands import KeyRequest, create_key
from paceline.errors import InvalidInput
from paceline.settings import Settings
from paceline.store import SqliteStore

NOW = 1_800_000_000.0
SETTINGS = Settings(home=Path("home"), store_url="sqlite:///unused")


def store_with_key() -> SqliteStore:
    store = SqliteStore.in_memory()
    create_key(store, SETTINGS, KeyRequest(name="team", parallel=2, rpm=10), now=NOW)
    return store


def sent(store: SqliteStore) -> list[tuple[str, object, object]]:
    events = [stored.event for stored in store.events()]
    return [(each.name, each.fields.get("limit"), each.fields.get("rpm")) for each in events][-1:]


def test_a_reset_returns_to_the_limit_and_the_rate_of_the_key() -> None:
    store = store_with_key()

    commands.reset_limit(store, SETTINGS, "key:team", now=NOW)
    assert sent(store) == [("control.limit", 2, None)]

    commands.set_rate(store, SETTINGS, "key:team", Rate(rpm=5), now=NOW)
    assert sent(store) == [("control.rate", None, 5)]
    commands.set_rate(store, SETTINGS, "key:team", None, now=NOW)
    assert sent(store) == [("control.rate", None, 10)]


def test_a_key_that_does_not_exist_has_no_rate() -> None:
    with pytest.raises(InvalidInput, match="key:other has no rate"):
        commands.set_rate(store_with_key(), SETTINGS, "key:other", Rate(rpm=5), now=NOW)


def test_a_state_that_was_set_aside_does_not_free_the_keys_of_their_limits() -> None:
    store = store_with_key()
    store.save_state(GOVERNOR_STATE, b"{broken")

    set_aside_unreadable(store, GovernorSettings(), NOW)

    assert load_governor(store, GovernorSettings(), NOW).get_limit("key:team") == 2
