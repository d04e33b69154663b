"""Values that make the way to a real PostgreSQL server and back unchanged."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from paceline.store.postgres_connection import Column, Connection

texts = some.text(some.characters(exclude_categories=["Cs"]))
bigints = some.integers(-(1 << 63), (1 << 63) - 1)


@pytest.fixture(scope="module")
def connection(postgres_url: str) -> Iterator[Connection]:
    with Connection.connect(postgres_url) as connected:
        yield connected


def there_and_back(connection: Connection, array: Column) -> list[Any]:
    return [row[0] for row in connection.execute("SELECT * FROM unnest(%s)", (array,)).fetchall()]


@given(some.lists(some.none() | texts | some.sampled_from(["", "\x00", "\ue000", "\ue0000", "{a,b}", '"', "NULL"])))
def test_a_column_of_text_is_the_same_afterwards(connection: Connection, column: list[str | None]) -> None:
    assert there_and_back(connection, Column(str, column)) == column


@given(some.lists(some.none() | bigints))
def test_a_column_of_whole_numbers_is_the_same_afterwards(connection: Connection, column: list[int | None]) -> None:
    assert there_and_back(connection, Column(int, column)) == column


@given(some.lists(some.none() | some.floats(allow_nan=False)))
def test_a_column_of_numbers_is_the_same_afterwards(connection: Connection, column: list[float | None]) -> None:
    assert there_and_back(connection, Column(float, column)) == column


@given(some.lists(some.none() | some.booleans()))
def test_a_column_of_truth_values_is_the_same_afterwards(connection: Connection, column: list[bool | None]) -> None:
    assert there_and_back(connection, Column(bool, column)) == column
