"""Leadership in a database that several engines share: the server's clock, the epoch, and the fence."""

from collections.abc import Iterator

import psycopg
import pytest
from tests.postgres_server import empty_schema

from paceline.errors import LeadLost
from paceline.events import Event
from paceline.store import Campaign, Store, UnitSpec
from paceline.store.postgres import PostgresStore

MINUTES = 600.0


@pytest.fixture
def url(postgres_url: str) -> Iterator[str]:
    with empty_schema(postgres_url) as found:
        yield found


@pytest.fixture
def first(url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(url)
    yield store
    store.close()


@pytest.fixture
def second(url: str, first: PostgresStore) -> Iterator[PostgresStore]:
    store = PostgresStore(url)
    yield store
    store.close()


def test_clocks_that_differ_by_minutes_do_not_shorten_a_lease(first: PostgresStore, second: PostgresStore) -> None:
    assert first.lead("one", until=1010.0, now=1000.0)

    assert not second.lead("two", until=1010.0 + MINUTES, now=1000.0 + MINUTES)
    assert not second.lead("two", until=1010.0 - MINUTES, now=1000.0 - MINUTES)


def test_a_leader_that_was_replaced_can_store_nothing(first: PostgresStore, second: PostgresStore) -> None:
    assert first.lead("one", until=0.0, now=0.0)
    assert second.lead("two", until=10.0, now=0.0)

    with pytest.raises(LeadLost, match="another engine has taken the lead"):
        first.append_events([Event("engine.leading", 1.0)])
    with pytest.raises(LeadLost):
        first.save_state("governor", b"old")
    with pytest.raises(LeadLost), first.together():
        first.save_state("governor", b"old")
    with pytest.raises(LeadLost):
        first.lead("one", until=10.0, now=0.0)

    assert (first.events(), first.load_state("governor"), _leader(first)) == ([], None, "two")


def test_a_plan_of_a_leader_that_was_replaced_meanwhile_is_not_added(
    first: PostgresStore, second: PostgresStore
) -> None:
    assert first.lead("one", until=0.0, now=0.0)
    plan = [UnitSpec(id=str(number)) for number in range(600)]
    steps = first.add_campaign_in_steps(Campaign(name="night"), plan, update=False, now=1.0)
    next(steps)
    assert second.lead("two", until=10.0, now=0.0)

    with pytest.raises(LeadLost):
        list(steps)

    assert (second.campaigns(), second.units().units) == ([], ())


def test_a_leader_that_slept_while_another_led_and_resigned_can_store_nothing(
    first: PostgresStore, second: PostgresStore
) -> None:
    assert first.lead("one", until=0.0, now=0.0)
    assert second.lead("two", until=10.0, now=0.0)
    second.resign("two")

    with pytest.raises(LeadLost):
        first.save_state("governor", b"old")
    with pytest.raises(LeadLost):
        first.lead("one", until=10.0, now=0.0)


def test_a_lease_that_ran_out_is_kept_as_long_as_nobody_else_leads(first: PostgresStore) -> None:
    assert first.lead("one", until=0.0, now=0.0)

    first.save_state("governor", b"mine")

    assert first.lead("one", until=10.0, now=0.0)
    assert first.load_state("governor") == b"mine"


def test_a_process_that_gave_up_the_lead_stores_as_others_do(first: PostgresStore, second: PostgresStore) -> None:
    assert first.lead("one", until=0.0, now=0.0)
    assert second.lead("two", until=10.0, now=0.0)
    first.resign("one")

    first.append_events([Event("control.limit", 1.0)])

    assert ([stored.event.name for stored in second.events()], _leader(first)) == (["control.limit"], "two")


def test_each_leader_has_an_epoch_of_its_own(first: PostgresStore, second: PostgresStore, url: str) -> None:
    first.lead("one", until=10.0, now=0.0)
    first.lead("one", until=10.0, now=0.0)
    first.resign("one")
    second.lead("two", until=10.0, now=0.0)

    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT owner, epoch FROM leader").fetchall() == [("two", 2)]


def _leader(store: Store) -> str | None:
    lease = store.leader(now=0.0)
    return None if lease is None else lease.owner
