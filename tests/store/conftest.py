"""Assertions of the public contract are explained like those of any test."""

import pytest

pytest.register_assert_rewrite(
    "paceline.testing.store_contract", "paceline.testing.store_contract_engine", "paceline.testing.store_steps"
)
