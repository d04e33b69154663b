"""Leadership after any sequence of kills: the next process leads at once, and never beside another."""

import os
from pathlib import Path

import pytest

from paceline.errors import EngineBusy
from paceline.leadership.election import ENGINE, Leader, LeaderLock, new_owner, no_leader, resign
from paceline.store import SqliteStore

NOW = 1_000.0


def take_lead(home: Path, store: SqliteStore, owner: str, steps: int) -> LeaderLock:
    """Take the lead as an engine does; be killed after so many steps."""
    lock = LeaderLock(home, ENGINE)
    order = (
        lock.take,
        lambda: resign(store, lock.previous),
        lambda: lock.announce(Leader(owner=owner, pid=os.getpid(), since=NOW)),
        lambda: store.lead(owner, until=NOW + 60.0, now=NOW),
    )
    for step in order[:steps]:
        assert step() is not False
    return lock


@pytest.mark.parametrize("first", range(5))
@pytest.mark.parametrize("second", range(5))
@pytest.mark.parametrize("third", range(5))
def test_a_start_after_any_sequence_of_kills_leads_at_once(tmp_path: Path, first: int, second: int, third: int) -> None:
    store = SqliteStore.in_memory()
    for owner, steps in (("one", first), ("two", second), ("three", third)):
        take_lead(tmp_path, store, owner, steps).release()  # the kernel does this for a killed process

    take_lead(tmp_path, store, "four", 4)

    lease = store.leader(now=NOW)
    assert lease is not None
    assert lease.owner == "four"


def test_only_one_process_holds_a_lock_and_it_is_named(tmp_path: Path) -> None:
    store = SqliteStore.in_memory()
    lock = take_lead(tmp_path, store, "one", 4)

    assert not LeaderLock(tmp_path, ENGINE).take()
    assert LeaderLock(tmp_path, ENGINE).holder() == Leader(owner="one", pid=os.getpid(), since=NOW)
    lock.release()
    assert LeaderLock(tmp_path, ENGINE).holder() is None
    after = LeaderLock(tmp_path, ENGINE)
    assert (after.take(), after.previous) == (True, Leader(owner="one", pid=os.getpid(), since=NOW))


@pytest.mark.parametrize("content", [b"", bytes(60), b'{"owner": "\xff", "pid": 1, "since": 0.0}'])
def test_a_damaged_lock_names_nobody_and_can_be_taken(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ENGINE).write_bytes(content)

    lock = LeaderLock(tmp_path, ENGINE)

    assert (lock.take(), lock.previous) == (True, None)


@pytest.mark.parametrize(
    ("leader", "said"),
    [
        (Leader(owner="one", pid=4711, since=NOW), r"an engine \(process 4711\) runs .*: stop it first; because"),
        (Leader(owner="one", pid=4711, since=NOW, only_slots=True), r"`paceline exec` has started \(process 4711\)"),
    ],
)
def test_what_needs_a_home_without_leader_is_refused_while_one_leads(
    tmp_path: Path, leader: Leader, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.leadership.election.TURN_SECONDS", 0.0)
    lock = LeaderLock(tmp_path, ENGINE)
    assert lock.take()
    lock.announce(leader)

    with pytest.raises(EngineBusy, match=said), no_leader(tmp_path, "because"):
        raise AssertionError("it must not begin")

    lock.release()
    with no_leader(tmp_path, "because"):
        assert not LeaderLock(tmp_path, ENGINE).take()
    after = LeaderLock(tmp_path, ENGINE)
    assert (after.take(), after.previous) == (True, leader)


@pytest.mark.parametrize("host", ["slot-1234", "outside:7", "a" * 300, "höst.example", "", "--", "session"])
def test_any_host_name_gives_an_owner_that_a_spool_and_a_ticket_can_hold(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: host)

    owner = new_owner()

    assert owner.isascii()
    assert set(owner) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-")
    assert (owner[0] != "-", len(owner) <= 80, owner != new_owner()) == (True, True, True)
