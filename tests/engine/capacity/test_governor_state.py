"""What was learnt is never destroyed by a program that cannot read it."""

import msgspec
import pytest

from paceline.core import Governor, GovernorSettings
from paceline.core.state.snapshot import VERSION
from paceline.engine.capacity.governor_state import (
    GOVERNOR_STATE,
    apply_campaign_limits,
    load_governor,
    save_governor,
    set_aside_unreadable,
)
from paceline.errors import InvalidSnapshot
from paceline.store import Campaign, SqliteStore
from paceline.testing.engine_harness import NOW, EngineHarness

SETTINGS = GovernorSettings(limits={"sessions": 4})


def snapshot_with(**fields: object) -> bytes:
    governor = Governor(SETTINGS, now=NOW)
    governor.set_limit("sessions", 1, now=NOW)
    return msgspec.json.encode(msgspec.to_builtins(governor.snapshot()) | fields)


NEWER = snapshot_with(version=VERSION + 97)
NEWER_IN_ANOTHER_SHAPE = snapshot_with(version=VERSION + 97, scopes={"sessions": 1})
TRUNCATED = snapshot_with()[:40]
UNREADABLE = [
    pytest.param(NEWER, "newer Paceline .*update Paceline", id="newer"),
    pytest.param(NEWER_IN_ANOTHER_SHAPE, "newer Paceline .*update Paceline", id="newer-shape"),
    pytest.param(TRUNCATED, "cannot be read.*restore a copy", id="truncated"),
    pytest.param(b"\xff\x00", "cannot be read.*restore a copy", id="garbage"),
    pytest.param(snapshot_with(limits={"not a scope!": 1}), "cannot be read.*restore a copy", id="bad-scope"),
    pytest.param(snapshot_with(limits={"sessions": "many"}), "cannot be read.*restore a copy", id="bad-limit"),
]


@pytest.mark.parametrize(("stored", "words"), UNREADABLE)
async def test_an_engine_that_cannot_read_what_was_learnt_leaves_it_as_it_is(stored: bytes, words: str) -> None:
    harness = EngineHarness()
    harness.store.save_state(GOVERNOR_STATE, stored)

    for _ in range(2):
        with pytest.raises(InvalidSnapshot, match=words):
            await harness.engine.run(until_idle=True)
        harness.engine = harness.new_engine()

    assert harness.store.load_state(GOVERNOR_STATE) == stored
    assert harness.store.leader(now=NOW) is None


@pytest.mark.parametrize(("stored", "words"), UNREADABLE)
def test_what_cannot_be_read_is_set_aside_on_request_and_kept(stored: bytes, words: str) -> None:
    store = SqliteStore.in_memory()
    store.save_state(GOVERNOR_STATE, stored)

    with pytest.raises(InvalidSnapshot, match="paceline restore --unreadable"):
        load_governor(store, SETTINGS, NOW)
    key = set_aside_unreadable(store, SETTINGS, NOW)

    assert key is not None
    assert store.load_state(key) == stored, words
    assert load_governor(store, SETTINGS, NOW).get_limit("sessions") == 4
    assert set_aside_unreadable(store, SETTINGS, NOW) is None


def test_what_can_be_read_is_not_set_aside() -> None:
    store = SqliteStore.in_memory()
    governor = Governor(SETTINGS, now=NOW)
    governor.set_limit("sessions", 1, now=NOW)
    save_governor(store, governor)

    assert set_aside_unreadable(store, SETTINGS, NOW) is None
    assert load_governor(store, SETTINGS, NOW).get_limit("sessions") == 1


def test_a_campaign_is_never_a_pattern_for_the_limits_of_others() -> None:
    governor = Governor(SETTINGS, now=NOW)
    named_by_an_older_version = Campaign(name="docs?", max_sessions=1)

    apply_campaign_limits(governor, [named_by_an_older_version, Campaign(name="docs1")], NOW)

    assert governor.get_limit("campaign:docs1") is None
