"""A host hands out slots while no engine leads. Once it has lost the lead it grants nothing and stores nothing."""

import threading
from pathlib import Path

import pytest

from paceline.core import GovernorSettings
from paceline.core.signals import QuotaClosed, RateLimited, Usage
from paceline.engine import command_log
from paceline.engine.external_slots.process_client import ProcessClient
from paceline.engine.external_slots.registry import process_id
from paceline.engine.external_slots.standalone_host import SlotHost
from paceline.engine.governor_state import GOVERNOR_STATE, load_governor, save_governor
from paceline.errors import StoreBusy
from paceline.store import MemoryStore, SqliteStore, Store
from paceline.testing.engine_harness import NOW

LEASE = 60.0
SCOPES = ("sessions", "acme", "acme/main")
SETTINGS = GovernorSettings(limits={"sessions": 4})


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "paceline.db")


def new_host(store: Store, settings: GovernorSettings = SETTINGS, **usage: object) -> SlotHost:
    return SlotHost(store, settings, owner="host", lease=LEASE, **usage)  # type: ignore[arg-type]


def ask(store: Store) -> ProcessClient:
    client = ProcessClient(store, SCOPES, priority=0, holder=process_id(1))
    client.request(NOW)
    return client


def lead_as_an_engine(store: Store, now: float) -> bytes:
    """Take the lead, close a window, store it and resign. Returns what was stored."""
    assert store.lead("engine", until=now + LEASE, now=now)
    governor = load_governor(store, SETTINGS, now)
    governor.report("acme/main", QuotaClosed(window="5h", resets_at=now + 9_000.0, confidence=1.0), now=now)
    save_governor(store, governor)
    learnt = store.load_state(GOVERNOR_STATE)
    assert learnt is not None
    return learnt


def is_granted(client: ProcessClient) -> bool:
    slot = client.read()
    return slot is not None and slot.granted_at is not None


@pytest.mark.parametrize("verb", ["serve", "resign"])
def test_a_host_that_lost_the_lead_grants_and_stores_nothing(store: Store, verb: str) -> None:
    host = new_host(store)
    host.serve(NOW)
    learnt = lead_as_an_engine(store, NOW + LEASE)  # the host was suspended, and its lease ran out
    client = ask(store)

    getattr(host, verb)(NOW + LEASE + 1.0)

    assert (client.read(), store.load_state(GOVERNOR_STATE), store.leader()) == (None, learnt, "engine")


@pytest.mark.parametrize("verb", ["serve", "resign"])
def test_a_host_forgets_what_it_knew_before_another_one_led(store: Store, verb: str) -> None:
    host = new_host(store)
    host.serve(NOW)
    learnt = lead_as_an_engine(store, NOW + LEASE)
    store.resign("engine")  # it led, and ended, while the host was suspended
    client = ask(store)

    getattr(host, verb)(NOW + LEASE + 1.0)

    assert not is_granted(client)
    if verb == "resign":
        assert (store.load_state(GOVERNOR_STATE), store.leader()) == (learnt, None)
    else:
        slot = client.read()
        assert slot is not None
        assert slot.waiting is not None
        assert (slot.waiting.reason, slot.waiting.scope) == ("window_closed", "acme/main")


def test_a_host_carries_out_its_own_release_before_it_resigns(store: Store) -> None:
    host = new_host(store)
    client = ask(store)
    host.serve(NOW)
    assert is_granted(client)
    client.release(NOW + 1.0)

    host.resign(NOW + 1.0)

    assert (store.slots(), store.leader()) == ([], None)


def test_what_a_host_could_not_store_was_never_granted(tmp_path: Path) -> None:
    class Failing(SqliteStore):
        is_failing = False

        def save_slots(self, *args: object) -> None:
            if self.is_failing:
                raise StoreBusy("another process is writing")
            super().save_slots(*args)  # type: ignore[arg-type]

    store = Failing(tmp_path / "paceline.db")
    host = new_host(store, GovernorSettings(limits={"sessions": 1}))
    client = ask(store)
    store.is_failing = True
    with pytest.raises(StoreBusy):
        host.serve(NOW)
    store.is_failing = False

    host.serve(NOW + 1.0)

    assert is_granted(client)
    assert [event.event.name for event in store.events()] == ["control.slot_request", "slot.granted"]
    store.close()


def test_a_host_stores_the_events_of_what_it_decides(store: Store) -> None:
    host = new_host(store)
    client = ask(store)
    host.serve(NOW)
    client.report("acme/main", RateLimited(retry_after=30.0), NOW + 1.0)
    client.release(NOW + 2.0)

    host.serve(NOW + 2.0)
    host.resign(NOW + 3.0)

    names = [stored.event.name for stored in store.events()]
    own = [name for name in names if not name.startswith("control.")]
    assert own[0] == "slot.granted"
    assert {"scope.paused", "slot.released"} <= set(own)
    assert load_governor(store, SETTINGS, NOW + 3.0).status("acme/main", now=NOW + 3.0).paused_until == NOW + 32.0  # type: ignore[union-attr]
    assert command_log.CommandReader(store).read() == []


def test_a_host_polls_usage_and_counts_what_the_provider_counts(store: Store) -> None:
    answered = threading.Event()

    async def usage() -> Usage:
        answered.set()
        return Usage(concurrent_sessions=1)

    settings = GovernorSettings(limits={"sessions": 4, "acme": 1}, usage_scopes=("acme",))
    host = new_host(store, settings, usage={"acme": usage})
    first, second = ask(store), ask(store)
    host.serve(NOW)
    first.release(NOW + 1.0)

    for seconds in (1.0, 2.0):
        host.serve(NOW + seconds)
        assert answered.wait(20.0)
        join_polls()
    host.serve(NOW + 2.5)

    slot = second.read()
    assert slot is not None
    assert slot.waiting is not None
    assert (slot.granted_at, slot.waiting.scope) == (None, "acme")


def join_polls() -> None:
    """Wait until the answers of all polls are there."""
    for thread in threading.enumerate():
        if thread.name.startswith("usage poll"):
            thread.join(20.0)
