"""Every store of Paceline passes the public contract."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.store import MemoryStore, SqliteStore, Store
from paceline.testing.store_contract import StoreContract
from paceline.testing.store_contract_accounts import AccountContract


@pytest.fixture
def memory_store() -> Store:
    return MemoryStore()


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[Store]:
    store = SqliteStore(tmp_path / "paceline.db")
    yield store
    store.close()


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self, memory_store: Store) -> Store:
        return memory_store


class TestMemoryAccounts(AccountContract):
    @pytest.fixture
    def store(self, memory_store: Store) -> Store:
        return memory_store


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def store(self, sqlite_store: Store) -> Store:
        return sqlite_store


class TestSqliteAccounts(AccountContract):
    @pytest.fixture
    def store(self, sqlite_store: Store) -> Store:
        return sqlite_store
