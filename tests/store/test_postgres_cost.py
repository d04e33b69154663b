"""What the engine asks at every pass reads the same number of rows however many units are stored.

The server counts the rows, so no busy neighbour can change the result; seconds are for the benchmark. The statistics of
the large table are those of an empty one, as they are soon after a plan was added.
"""

from collections.abc import Callable, Iterator

import pytest
from tests.postgres_server import empty_schema

from paceline.store import Campaign, Store, UnitSpec
from paceline.store.postgres import PostgresStore
from paceline.store.postgres_database import PostgresDatabase
from paceline.testing.store_steps import NOW, claim, ended, record

SMALL, LARGE = 300, 6_000
LEFT = 60
LATER = NOW + 1e6
ROWS_READ = """SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::bigint FROM pg_stat_xact_user_tables
    WHERE schemaname = current_schema()"""


def filled(url: str, size: int) -> PostgresStore:
    """Of `size` units a third is done, a third parked, some of these with a conversation, and a third waits behind."""
    store = PostgresStore(url)
    specs = (UnitSpec(id=str(number), prompt="do it") for number in range(size + LEFT))
    store.add_campaign(Campaign(name="night"), specs, update=False, now=NOW)
    units = claim(store, size * 2 // 3)
    record(store, [ended(unit, "succeeded") for unit in units[::2]])
    record(store, [ended(unit, "parked", resume_at=LATER, conversation_id="talk") for unit in units[1::4]])
    record(store, [ended(unit, "parked", resume_at=LATER) for unit in units[3::4]])
    return store


@pytest.fixture(scope="module")
def stores(postgres_url: str) -> Iterator[tuple[PostgresStore, PostgresStore]]:
    with empty_schema(postgres_url) as small, empty_schema(postgres_url) as large:
        made = filled(small, SMALL), filled(large, LARGE)
        yield made
        for store in made:
            store.close()


def rows_read(store: PostgresStore, verb: Callable[[Store], object]) -> int:
    database = store.database
    assert isinstance(database, PostgresDatabase)

    def count(database: PostgresDatabase = database) -> int:
        with database.writing() as connection:
            row = connection.execute(ROWS_READ).fetchone()
        assert row is not None
        return int(row[0])

    with store.together():
        before = count()
        verb(store)
        return count() - before


@pytest.mark.parametrize(
    "verb",
    [
        lambda store: claim(store, 10),
        lambda store: record(store, [ended(unit, "succeeded") for unit in claim(store, 10)]),
        lambda store: store.renew_units({unit.id: unit.fence for unit in claim(store, 10)}, lease_until=LATER),
        lambda store: [
            store.save_progress(unit.id, unit.fence, phase="checking", result=None) for unit in claim(store, 3)
        ],
        lambda store: store.counts(),
        lambda store: store.claimable(),
        lambda store: store.next_resume_at(),
        lambda store: store.wake_units(now=NOW),
        lambda store: store.units(limit=10, state="todo"),
        lambda store: store.unit("night/77"),
        lambda store: store.move_units([f"night/{number}" for number in range(SMALL, SMALL + 10)], "held", "", now=NOW),
    ],
    ids=[
        "claim",
        "record",
        "renew",
        "save",
        "counts",
        "claimable",
        "next_resume_at",
        "wake",
        "page",
        "unit",
        "hold",
    ],
)
def test_a_verb_of_the_pass_reads_no_more_rows_in_a_large_store(
    stores: tuple[PostgresStore, PostgresStore], verb: Callable[[Store], object]
) -> None:
    small, large = stores

    assert rows_read(large, verb) <= rows_read(small, verb) + 5


def test_no_statement_is_compiled_before_it_runs(stores: tuple[PostgresStore, PostgresStore]) -> None:
    """The server compiles statements that it takes for costly, and one of ours takes less time than that."""
    database = stores[0].database
    assert isinstance(database, PostgresDatabase)
    with database.writing() as connection:
        assert connection.execute("SHOW jit").fetchone() == ("off",)
