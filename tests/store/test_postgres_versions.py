"""Two versions of Paceline on one database, as while their engines are restarted one by one."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import Final

import psycopg
import pytest
from tests.postgres_server import empty_schema
from tests.store.workload import everything, verbs

from paceline.errors import EngineBusy, PacelineError, StoreBusy, StoreError, StoreTooNew, StoreTooOld
from paceline.events import Event
from paceline.store import Campaign, Store, UnitSpec
from paceline.store.postgres import PostgresStore
from paceline.store.schema import MIGRATIONS, Migration
from paceline.testing.store_contract import StoreContract
from paceline.testing.store_steps import add, claim, ended, names, record, specs

TABLES: Final = ("campaigns", "units", "prompts", "results", "tallies", "events", "slots", "states", "leader")
ADDITIVE: Final = Migration(
    (
        *(f"ALTER TABLE {table} ADD COLUMN of_tomorrow INTEGER DEFAULT 7" for table in TABLES),
        "CREATE TABLE tomorrow (x INTEGER)",
        "CREATE INDEX units_of_tomorrow ON units (of_tomorrow)",
    ),
    is_additive=True,
)
BREAKING: Final = Migration(("ALTER TABLE units RENAME COLUMN reason TO why",), is_additive=False)
OLDEST: Final = max(number for number, each in enumerate(MIGRATIONS, 1) if not each.is_additive)
"""The version that code must know to use the schema of today."""
NEXT: Final = (*MIGRATIONS, ADDITIVE)
AFTER_NEXT: Final = (*NEXT, BREAKING)


@pytest.fixture
def url(postgres_url: str) -> Iterator[str]:
    with empty_schema(postgres_url) as found:
        yield found


@pytest.fixture
def older_store(url: str) -> Iterator[Store]:
    """A store of this version in a schema that the next version has updated."""
    PostgresStore(url, migrations=NEXT).close()
    with closing(PostgresStore(url)) as store:
        yield store


class TestOlderCode(StoreContract):
    """Every promise of a store holds in a schema with tables, columns and indexes of the next version."""

    @pytest.fixture
    def store(self, older_store: Store) -> Store:
        return older_store


def test_code_of_two_versions_reads_and_writes_one_database(url: str) -> None:
    with closing(PostgresStore(url)) as older:
        for verb in islice(verbs(20), 12):
            verb(older)
        before = everything(older)
        with closing(PostgresStore(url, migrations=NEXT)) as newer:
            assert everything(newer) == everything(older) == before
            add(newer, specs("a", "b"))
            assert names(claim(older)) == ["a"]
            assert names(claim(newer)) == ["b"]
            older.append_events([Event("engine.stopped", 1.0)])

            assert everything(older) == everything(newer)
    assert _versions(url) == (len(NEXT), OLDEST)


def test_older_code_keeps_what_newer_code_has_stored(url: str) -> None:
    with closing(PostgresStore(url)) as older:
        add(older, specs("a"))
        PostgresStore(url, migrations=NEXT).close()
        with psycopg.connect(url) as connection:
            connection.execute("UPDATE units SET of_tomorrow = 9")

        (unit,) = claim(older)
        record(older, [ended(unit, "parked")])

    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT of_tomorrow FROM units").fetchall() == [(9,)]


def test_an_update_under_load_stops_nobody(url: str) -> None:
    """Workers of the old version claim and record all the time; their statements are prepared in the server."""
    units = 400
    with closing(PostgresStore(url)) as store:
        store.add_campaign(Campaign(name="night"), (UnitSpec(id=str(n)) for n in range(units)), update=False, now=1.0)
    failures: list[BaseException] = []
    half_done = threading.Barrier(3)

    def work(name: str) -> None:
        try:
            with closing(PostgresStore(url, busy_seconds=20.0)) as older:
                for turn in range(units // 2):
                    if turn == units // 4:
                        half_done.wait(60.0)
                    attempt = f"{name}-{turn}"
                    (unit,) = older.claim_units("night", "", 1, attempt_ids=[attempt], lease_until=9.0, now=2.0)
                    record(older, [ended(unit, "succeeded")])
                    older.append_events([Event("unit.done", 3.0, unit=unit.id)])
        except (PacelineError, threading.BrokenBarrierError) as error:
            failures.append(error)
            half_done.abort()

    workers = [threading.Thread(target=work, args=(name,)) for name in ("one", "two")]
    for worker in workers:
        worker.start()
    half_done.wait(60.0)
    with closing(PostgresStore(url, migrations=NEXT)) as newer:
        for worker in workers:
            worker.join()

        assert failures == []
        assert (newer.counts()["night"].done, newer.claimable()) == (units, {})
        done = [stored.event.unit for stored in newer.events(limit=10_000)]
        assert Counter(done) == Counter(f"night/{number}" for number in range(units))


def test_older_code_stores_nothing_after_a_change_that_it_cannot_follow(url: str) -> None:
    with closing(PostgresStore(url)) as older:
        add(older, specs("a"))
        many = [UnitSpec(id=str(number)) for number in range(600)]
        steps = older.add_campaign_in_steps(Campaign(name="day"), many, update=False, now=1.0)
        PostgresStore(url, migrations=AFTER_NEXT).close()
        before = _rows(url)

        for write in (
            lambda: claim(older),
            lambda: older.lead("box-1", until=2.0, now=1.0),
            lambda: older.append_events([Event("engine.leading", 1.0)]),
            lambda: list(steps),
        ):
            with pytest.raises(StoreTooNew, match=rf"schema {len(AFTER_NEXT)}, this one knows {len(MIGRATIONS)}"):
                write()

    assert _rows(url) == before
    for too_old in (MIGRATIONS, NEXT):
        with pytest.raises(StoreTooNew, match=rf"schema {len(AFTER_NEXT)}, this one knows {len(too_old)}\): upgrade"):
            PostgresStore(url, migrations=too_old)


def test_a_change_that_older_code_cannot_follow_waits_for_its_engine(url: str) -> None:
    with closing(PostgresStore(url)) as older:
        older.lead("box-1", until=time.time() + 600.0, now=time.time())
        before = _versions(url)

        with pytest.raises(EngineBusy, match=r"the engine box-1 of an older Paceline leads .*: stop that engine first"):
            PostgresStore(url, migrations=AFTER_NEXT)

        assert (_versions(url), _columns(url)) == (before, _columns(url) - {"why"})
        PostgresStore(url, migrations=NEXT).close()
        older.resign("box-1")

    PostgresStore(url, migrations=AFTER_NEXT).close()
    assert _versions(url) == (len(AFTER_NEXT), len(AFTER_NEXT))


def test_an_update_waits_for_an_import_and_then_gives_up(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.store.postgres_database.MIGRATION_SECONDS", 0.1)
    many = [UnitSpec(id=str(number)) for number in range(600)]
    with closing(PostgresStore(url)) as older:
        steps = older.add_campaign_in_steps(Campaign(name="day"), many, update=False, now=1.0)
        next(steps)

        with pytest.raises(StoreBusy):
            PostgresStore(url, migrations=NEXT)
        assert (_versions(url), older.load_state("none")) == ((len(MIGRATIONS), OLDEST), None)
        list(steps)

        PostgresStore(url, migrations=NEXT).close()
        assert older.counts()["day"].todo == 600


def test_an_update_waits_for_a_reader_and_stops_nobody_meanwhile(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.store.postgres_database.MIGRATION_SECONDS", 0.1)
    with closing(PostgresStore(url)) as older, psycopg.connect(url) as reader:
        add(older, specs("a"))
        reader.execute("SELECT count(*) FROM units")

        with pytest.raises(StoreBusy):
            PostgresStore(url, migrations=NEXT)

        assert names(claim(older)) == ["a"]
        reader.commit()
        PostgresStore(url, migrations=NEXT).close()


def test_a_database_of_a_version_that_was_never_released_is_refused_and_left(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE paceline (version INTEGER NOT NULL, oldest INTEGER NOT NULL)")
        connection.execute("INSERT INTO paceline VALUES (6, 1)")
    before = _columns(url)

    with pytest.raises(StoreTooOld, match=r"^postgresql://.* never released.*finish its work with that"):
        PostgresStore(url)

    assert _columns(url) == before


def test_a_change_that_fails_leaves_the_schema_as_it_was(url: str) -> None:
    PostgresStore(url).close()
    statements = ("CREATE TABLE tomorrow (x INTEGER)", "ALTER TABLE nowhere ADD COLUMN x INTEGER")
    wrong = Migration(statements, is_additive=True)

    with pytest.raises(StoreError, match="nowhere"):
        PostgresStore(url, migrations=(*MIGRATIONS, wrong))

    assert _versions(url) == (len(MIGRATIONS), OLDEST)
    PostgresStore(url, migrations=NEXT).close()


def _versions(url: str) -> tuple[int, int]:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT version, oldest FROM schema_version").fetchone()
    assert row is not None
    return row[0], row[1]


def _columns(url: str) -> set[str]:
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema()"
        )
        return {name for (name,) in found}


def _rows(url: str) -> list[list[tuple[object, ...]]]:
    with psycopg.connect(url) as connection:
        return [connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall() for table in TABLES]
