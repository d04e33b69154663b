"""What the engine asks at every pass costs the same however many units are stored.

Counted in steps of SQLite's machine, which no busy neighbour can change; seconds are for the benchmark.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from paceline.store import Campaign, SqliteStore, Store, UnitSpec
from paceline.store.sqlite import SqliteFile
from paceline.testing.store_steps import NOW, claim, ended, record

LEFT = 30
LATER = NOW + 1e6


def filled(path: Path, size: int) -> SqliteStore:
    """Of `size` units a third is done, a third parked, some of these with a conversation, and a third waits behind."""
    store = SqliteStore(path)
    specs = (UnitSpec(id=str(number), prompt="x" * (5_000 if number == size else 10)) for number in range(size + LEFT))
    store.add_campaign(Campaign(name="night"), specs, update=False, now=NOW)
    units = claim(store, size * 2 // 3)
    record(store, [ended(unit, "succeeded") for unit in units[::2]])
    record(store, [ended(unit, "parked", resume_at=LATER, conversation_id="talk") for unit in units[1::4]])
    record(store, [ended(unit, "parked", resume_at=LATER) for unit in units[3::4]])
    return store


@contextmanager
def counted_steps(store: SqliteStore) -> Iterator[list[int]]:
    steps = [0]

    def count() -> None:
        steps[0] += 1

    file = store.database
    assert isinstance(file, SqliteFile)
    with file.reading() as connection:
        connection.set_progress_handler(count, 1)
    yield steps
    with file.reading() as connection:
        connection.set_progress_handler(None, 1)


@pytest.mark.parametrize(
    "verb",
    [
        lambda store: claim(store, 10),
        lambda store: record(store, [ended(unit, "succeeded") for unit in claim(store, 10)]),
        lambda store: store.counts(),
        lambda store: store.claimable(),
        lambda store: store.running_units(),
        lambda store: store.next_resume_at(),
        lambda store: store.wake_units(now=NOW),
        lambda store: store.units(limit=10, state="todo"),
        lambda store: store.units(limit=10, campaign="night", state="running"),
        lambda store: store.unit("night/77"),
    ],
    ids=["claim", "settle", "counts", "claimable", "running", "next", "wake", "todo page", "running page", "unit"],
)
def test_the_cost_is_flat(tmp_path: Path, verb: Callable[[Store], object]) -> None:
    costs = []
    for size in (300, 6_000):
        store = filled(tmp_path / f"{size}.db", size)
        with counted_steps(store) as steps:
            verb(store)
        costs.append(steps[0])
        store.close()

    small, large = costs
    assert 0 < large <= small * 1.01


@pytest.mark.parametrize(
    "verb",
    [
        lambda store: claim(store, 10),
        lambda store: record(store, [ended(unit, "succeeded") for unit in claim(store, 10)]),
        lambda store: store.renew_units({"night/1": 1, "night/2": 1}, lease_until=LATER),
        lambda store: store.claimable(),
        lambda store: store.next_resume_at(),
        lambda store: store.wake_units(now=NOW),
        lambda store: store.unit("night/7"),
    ],
    ids=["claim", "settle", "renew", "claimable", "next", "wake", "unit"],
)
def test_campaigns_that_are_done_cost_nothing(tmp_path: Path, verb: Callable[[Store], object]) -> None:
    costs = []
    for campaigns in (10, 200):
        store = SqliteStore(tmp_path / f"{campaigns}.db")
        for number in range(campaigns):
            name = f"done{number}"
            store.add_campaign(Campaign(name=name), [UnitSpec(id="a")], update=False, now=NOW)
            record(store, [ended(unit, "succeeded") for unit in claim(store, campaign=name)])
        specs = [UnitSpec(id=str(number)) for number in range(LEFT)]
        store.add_campaign(Campaign(name="night"), specs, update=False, now=NOW)
        with counted_steps(store) as steps:
            verb(store)
        costs.append(steps[0])
        store.close()

    few, many = costs
    assert 0 < many <= few * 1.01


def test_units_that_wait_for_no_time_cost_a_start_nothing(tmp_path: Path) -> None:
    costs = []
    for size in (300, 6_000):
        store = SqliteStore(tmp_path / f"{size}.db")
        specs = [UnitSpec(id=str(number)) for number in range(size)]
        store.add_campaign(Campaign(name="night"), specs, update=False, now=NOW)
        record(store, [ended(unit, "refused", resume_at=LATER) for unit in claim(store, 10)])
        with counted_steps(store) as steps:
            store.hasten_units({}, set_back_to=NOW)
        costs.append(steps[0])
        store.close()

    small, large = costs
    assert 0 < large <= small * 1.01
