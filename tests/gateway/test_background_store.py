"""Reading a store in threads: opened once, by the first reading, and never waited for forever."""

import threading

import pytest
from tests.gateway.gateway_harness import PATIENCE_SECONDS, until

from paceline.errors import StoreBusy, StoreError
from paceline.gateway import BackgroundStore
from paceline.gateway.background_store import in_thread, read_soon
from paceline.store import ClientKey, HashedKey, MemoryStore, SpendRow, Store

ROW = SpendRow(day="2027-01-15", key="team", account="work", model="m", requests=1, billed=3.0)


def test_a_store_is_opened_by_the_first_reading_and_again_after_a_failure() -> None:
    store, opened = MemoryStore(), list[bool]()
    store.create_client_key(ClientKey(name="team"), "d1")
    store.add_spend([ROW])

    def open_store() -> Store:
        opened.append(len(opened) > 0)
        if not opened[-1]:
            raise StoreError("the server is not there")
        return store

    background = BackgroundStore(open_store)
    before = len(opened)
    with pytest.raises(StoreError, match="not there"):
        background.client_keys()

    assert background.client_keys() == [HashedKey(ClientKey(name="team"), "d1")]
    assert background.spend(since="2027-01-01", key="team") == [ROW]
    assert (before, opened) == (0, [False, True])
    background.close()


async def test_a_reading_that_hangs_is_given_up_and_the_loop_goes_on() -> None:
    wakes, threads = threading.Event(), threading.active_count()

    with pytest.raises(StoreBusy, match="did not answer within 1 s"):
        await read_soon(lambda: wakes.wait(PATIENCE_SECONDS))

    assert await in_thread(lambda: threading.current_thread().daemon)
    wakes.set()
    await until(lambda: threading.active_count() == threads)


async def test_an_error_of_a_reading_is_raised_where_it_was_asked_for() -> None:
    def fail() -> None:
        raise StoreError("damaged")

    with pytest.raises(StoreError, match="damaged"):
        await read_soon(fail)
