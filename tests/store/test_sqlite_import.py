"""A long plan on its way into the file: nobody waits for it, nobody sees half of it, nothing of it is left behind."""

import sqlite3
import subprocess
import sys
from collections.abc import Generator, Iterator
from itertools import islice
from pathlib import Path

import msgspec
import pytest

from paceline.errors import IllegalStep, StoreBusy
from paceline.store import Added, Campaign, Page, SqliteStore, UnitCounts, UnitSpec
from paceline.store.sqlite import FORGOTTEN_SECONDS
from paceline.testing.store_steps import NOW, add, claim, names, specs

ROOT = Path(__file__).parents[2]
MANY = specs(*(f"u{number}" for number in range(1_200)))
TABLES = ("units", "prompts", "arrivals")


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(path, busy_seconds=0.05)
    yield made
    made.close()


def half_added(store: SqliteStore, *, now: float = NOW) -> Generator[None, None, Added]:
    """Some of the steps are made, and some are left."""
    steps = store.add_campaign_in_steps(Campaign(name="night"), MANY, update=False, now=now)
    assert len(list(islice(steps, 3))) == 3
    return steps


def ended(steps: Generator[None, None, Added]) -> Added:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            added: Added = end.value
            return added


def rows(path: Path) -> list[int]:
    connection = sqlite3.connect(path)
    counted = [connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES]
    connection.close()
    return counted


def test_others_write_between_the_steps(store: SqliteStore, path: Path) -> None:
    steps = half_added(store)
    other = SqliteStore(path, busy_seconds=0.05)

    added = add(other, specs("z"), "day")
    claimed = names(claim(other, 5, campaign="day"))

    assert (added, claimed) == (Added(added=1), ["z"])
    assert names(other.units().units) == ["z"]
    assert ended(steps) == Added(added=1_200)
    assert other.counts() == {"night": UnitCounts(todo=1_200), "day": UnitCounts(running=1)}
    other.close()


def test_what_arrives_can_neither_be_found_nor_run_nor_be_given_up(store: SqliteStore) -> None:
    add(store, specs("a", "b"))
    steps = half_added(store)

    assert (store.unit("night/u1"), names(claim(store, 9))) == (None, ["a", "b"])
    assert store.move_units(["night/u1"], "held", "a person", now=NOW) == 0
    assert store.cancel_units("night", now=NOW) == ["night/a", "night/b"]

    assert ended(steps) == Added(added=1_200)
    assert store.counts() == {"night": UnitCounts(todo=1_200, cancelled=2)}


def test_pages_go_around_what_arrives(store: SqliteStore) -> None:
    add(store, specs("a"), "day")
    steps = half_added(store)
    add(store, specs("b", "c"), "dusk")

    first = store.units(limit=2)
    second = store.units(limit=2, cursor=first.cursor)

    assert (names(first.units), names(second.units), second.cursor) == (["a", "b"], ["c"], None)
    assert names(store.units(state="todo").units) == ["a", "b", "c"]
    steps.close()


def test_a_process_that_dies_leaves_nothing_in_the_way_of_the_next(path: Path) -> None:
    workload = [sys.executable, "-m", "tests.store.workload", str(path)]
    assert subprocess.run(workload, cwd=ROOT).returncode < 0
    left = rows(path)
    store = SqliteStore(path)

    added = store.add_campaign(Campaign(name="night"), MANY, update=False, now=NOW)

    assert left[0] > 1_000
    assert (added, store.counts()) == (Added(added=1_200), {"night": UnitCounts(todo=1_201)})
    store.close()
    assert rows(path) == [1_201, 1_200, 0]


def test_what_nobody_comes_back_for_is_swept_away_in_time(store: SqliteStore, path: Path) -> None:
    half_added(store).close()
    add(store, specs("a"), "day")
    soon = rows(path)

    store.add_campaign(Campaign(name="day"), (), update=False, now=NOW + FORGOTTEN_SECONDS + 1.0)

    assert (soon[0] > 500, rows(path)) == (True, [1, 1, 0])


def test_a_plan_with_a_mistake_near_its_end_leaves_no_row(store: SqliteStore, path: Path) -> None:
    with pytest.raises(ValueError, match="named twice"):
        add(store, [*MANY, MANY[0]])

    assert (rows(path), store.units()) == ([0, 0, 0], Page(units=()))


def test_one_that_comes_later_goes_first_and_the_other_is_reported(store: SqliteStore, path: Path) -> None:
    steps = half_added(store)
    other = SqliteStore(path)

    added = add(other, specs("a"))

    with pytest.raises(StoreBusy, match="add them again"):
        ended(steps)
    assert (added, names(store.units().units)) == (Added(added=1), ["a"])
    other.close()


def test_a_campaign_that_is_deleted_meanwhile_stays_deleted(store: SqliteStore, path: Path) -> None:
    add(store, specs("a"))
    steps = half_added(store)

    store.delete_campaign("night")

    with pytest.raises(StoreBusy, match="add them again"):
        ended(steps)
    assert (rows(path), store.campaigns()) == ([0, 0, 0], [])


def test_a_campaign_that_is_cancelled_meanwhile_takes_no_more(store: SqliteStore, path: Path) -> None:
    add(store, specs("a"))
    steps = half_added(store)

    store.set_campaign(msgspec.structs.replace(store.campaigns()[0], state="cancelled"))

    with pytest.raises(IllegalStep, match="night was cancelled"):
        ended(steps)
    assert rows(path) == [1, 1, 0]


def test_what_began_to_run_meanwhile_is_not_replaced(store: SqliteStore) -> None:
    add(store, specs("a", "b"))
    changed = [UnitSpec(id=name, prompt="new") for name in ("a", "b")]
    steps = store.add_campaign_in_steps(Campaign(name="night"), [*changed, *MANY], update=True, now=NOW)
    next(steps)

    claim(store)

    assert ended(steps) == Added(added=1_200, changed=("night/a",), updated=("night/b",))
