"""Every store of Paceline passes the public contract."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.store import MemoryStore, SqliteStore, Store
from paceline.testing.store_contract import StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        store = SqliteStore(tmp_path / "paceline.db")
        yield store
        store.close()
