"""The contract of a store about the keys of clients: created once, found by digest, revoked for good.

It is a suite of its own beside `StoreContract`, with the same fixture `store`.
"""

import msgspec
import pytest

from paceline.errors import IllegalStep, UnknownName
from paceline.store import ClientKey, HashedKey, KeyBudget, Store
from paceline.testing.store_steps import NOW

TEAM = ClientKey(
    name="team",
    pool="work",
    models=("opus-4-6", "gpt-5"),
    rpm=60,
    tpm=100_000,
    parallel=4,
    priority_max=3,
    weight=2.5,
    budget=KeyBudget(50.0, "month"),
    created_at=NOW,
)


class ClientKeyContract:
    """Tests of the keys that clients present to the gateway."""

    def test_keys_are_returned_as_they_were_created(self, store: Store) -> None:
        plain = ClientKey(name="a", created_at=NOW)

        store.create_client_key(TEAM, "d1")
        store.create_client_key(plain, "d2")

        assert store.client_keys() == [HashedKey(TEAM, "d1"), HashedKey(plain, "d2")]

    def test_a_name_is_given_once_until_its_key_is_revoked(self, store: Store) -> None:
        store.create_client_key(TEAM, "d1")
        with pytest.raises(IllegalStep, match="there is a key 'team' already; choose another name"):
            store.create_client_key(TEAM, "d2")
        revoked = store.revoke_client_key("team", now=NOW + 5)
        store.create_client_key(TEAM, "d3")

        assert revoked == msgspec.structs.replace(TEAM, revoked_at=NOW + 5)
        assert store.client_keys() == [HashedKey(revoked, "d1"), HashedKey(TEAM, "d3")]

    def test_only_a_key_that_is_there_can_be_revoked(self, store: Store) -> None:
        store.create_client_key(TEAM, "d1")
        store.revoke_client_key("team", now=NOW)
        for name in ("team", "nobody"):
            with pytest.raises(UnknownName, match=f"there is no key '{name}'"):
                store.revoke_client_key(name, now=NOW + 9)

        assert [each.key.revoked_at for each in store.client_keys()] == [NOW]

    def test_a_key_is_stored_with_the_rest_of_its_transaction_or_not_at_all(self, store: Store) -> None:
        store.create_client_key(TEAM, "d1")

        def fail_in_the_middle() -> None:
            with store.together():
                store.create_client_key(ClientKey(name="b"), "d2")
                store.revoke_client_key("team", now=NOW)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail_in_the_middle()

        assert store.client_keys() == [HashedKey(TEAM, "d1")]
