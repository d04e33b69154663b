"""A path for a database, and rewritten assertions in the public contract suite."""

from pathlib import Path

import pytest

pytest.register_assert_rewrite(
    "paceline.testing.store_contract",
    "paceline.testing.store_contract_attempts",
    "paceline.testing.store_contract_engine",
    "paceline.testing.store_steps",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database file that does not exist yet."""
    return tmp_path / "paceline.db"
