"""Every store of Paceline passes the public contract."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.postgres_server import empty_schema

from paceline.store import SqliteStore, Store
from paceline.store.postgres import PostgresStore
from paceline.testing.store_contract import StoreContract


@pytest.fixture
def memory_store() -> Store:
    return SqliteStore.in_memory()


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[Store]:
    store = SqliteStore(tmp_path / "paceline.db")
    yield store
    store.close()


class TestStoreInMemory(StoreContract):
    @pytest.fixture
    def store(self, memory_store: Store) -> Store:
        return memory_store


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def store(self, sqlite_store: Store) -> Store:
        return sqlite_store


@pytest.fixture
def postgres_store(postgres_url: str) -> Iterator[Store]:
    with empty_schema(postgres_url) as url:
        store = PostgresStore(url)
        yield store
        store.close()


class TestPostgresStore(StoreContract):
    @pytest.fixture
    def store(self, postgres_store: Store) -> Store:
        return postgres_store
