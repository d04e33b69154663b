"""The tokens of a fleet: one store, several homes, and no token in the store."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.postgres_server import empty_schema

from paceline.agents.account import gateway_key
from paceline.api.tokens import (
    AFTER_FAILURE_SECONDS,
    READ_AGAIN_SECONDS,
    AccessTokens,
    TokenEntry,
    TokenRegistry,
    digest_of,
    host_token_of,
    join_fleet,
    own_token_of,
    read_registry,
    revoke_host_tokens,
    revoke_token,
    rotate_token,
)
from paceline.engine.command_log import commanded_by, person
from paceline.errors import InvalidSettings, PacelineError, StoreDamaged, StoreError, UnknownName
from paceline.store import SqliteStore, Store
from paceline.store.postgres import PostgresStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = SqliteStore(tmp_path / "paceline.db")
    yield made
    made.close()


def home(folder: Path, name: str) -> Path:
    made = folder / name
    made.mkdir()
    return made


class Grant(NamedTuple):
    """What a token grants."""

    name: str
    rights: str
    host: str | None = None


def grants(tokens: AccessTokens, *given: str) -> list[Grant | None]:
    found = [tokens.find(each.encode()) for each in given]
    return [None if each is None else Grant(each.name, each.rights, each.host) for each in found]


def test_the_store_holds_hashes_and_no_token(store: Store, tmp_path: Path) -> None:
    tokens = join_fleet(store, home(tmp_path, "one"))
    store.close()

    stored = b"".join(path.read_bytes() for path in tmp_path.glob("paceline.db*"))
    assert digest_of(tokens.full.encode()).encode() in stored
    assert tokens.full.encode() not in stored
    assert tokens.read_only.encode() not in stored


def test_every_engine_accepts_the_tokens_of_all_homes(store: Store, tmp_path: Path) -> None:
    one, two = (join_fleet(store, home(tmp_path, name)) for name in ("one", "two"))

    expected = [Grant(name=person(), rights="full"), Grant(name=f"{person()}-readonly", rights="read")]
    assert grants(two, one.full, one.read_only) == grants(one, one.full, one.read_only) == expected
    assert grants(one, two.full) == [Grant(name=f"{person()}-2", rights="full")]
    assert grants(one, "x" * 43) == [None]


def test_joining_again_changes_nothing(store: Store, tmp_path: Path) -> None:
    folder = home(tmp_path, "one")
    join_fleet(store, folder)
    before = read_registry(store)

    join_fleet(store, folder)

    assert read_registry(store) == before
    assert [entry.home for entry in before.tokens] == [f"{folder} on {socket.gethostname()}"] * 2


def test_homes_that_join_at_once_all_stay(postgres_url: str, tmp_path: Path) -> None:
    folders = [home(tmp_path, f"home-{number}") for number in range(6)]
    with empty_schema(postgres_url) as url:
        PostgresStore(url).close()  # the tables are there
        threads = [threading.Thread(target=_join, args=(url, folder)) for folder in folders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store = PostgresStore(url)
        entries = read_registry(store).tokens
        store.close()

    assert {entry.home.partition(" on ")[0] for entry in entries} == {str(folder) for folder in folders}
    assert len({entry.name for entry in entries}) == len(entries) == 12


def _join(url: str, folder: Path) -> None:
    store = PostgresStore(url)
    join_fleet(store, folder)
    store.close()


class Moment:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def accepted(store: Store, folder: Path, moment: Moment) -> AccessTokens:
    """Return the tokens of a running engine, whose clock the test moves."""
    tokens = join_fleet(store, folder, now=moment)
    tokens.find(b"the first request")
    return tokens


def test_a_rotated_token_replaces_the_present_one_within_a_second(store: Store, tmp_path: Path) -> None:
    folder, moment = home(tmp_path, "one"), Moment()
    running = accepted(store, folder, moment)
    old = running.full
    cookie = running.keep_cookie(old.encode())

    fresh = rotate_token(store, folder, "full")
    moment.now += READ_AGAIN_SECONDS

    assert (folder / "token").read_text() == f"{fresh}\n"
    assert (folder / "token").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in folder.iterdir()) == ["gateway-secret", "token", "token-readonly"]
    assert grants(running, old, fresh) == [None, Grant(name=person(), rights="full")]
    assert running.find_cookie(cookie, b"") is None
    assert running.full == fresh


def test_a_revoked_token_stays_refused_until_it_is_rotated(store: Store, tmp_path: Path) -> None:
    folder, moment = home(tmp_path, "one"), Moment()
    running = accepted(store, folder, moment)

    assert revoke_token(store, person()).rights == "full"
    moment.now += READ_AGAIN_SECONDS

    assert grants(running, running.full) == [None]
    with pytest.raises(InvalidSettings, match=r"token was revoked; `paceline token --rotate` makes a new one"):
        join_fleet(store, folder)
    fresh = rotate_token(store, folder, "full")
    assert grants(join_fleet(store, folder), fresh) == [Grant(name=person(), rights="full")]


def test_an_unknown_name_is_not_revoked(store: Store, tmp_path: Path) -> None:
    join_fleet(store, home(tmp_path, "one"))
    before = read_registry(store)

    with pytest.raises(UnknownName, match=r"there is no token 'somebody'; `paceline token --list` lists them"):
        revoke_token(store, "somebody")

    assert read_registry(store) == before


def test_the_token_of_a_deleted_file_is_refused_once_a_new_one_is_made(store: Store, tmp_path: Path) -> None:
    folder = home(tmp_path, "one")
    old = own_token_of(store, folder, "full")
    (folder / "token").unlink()

    tokens = join_fleet(store, folder)

    assert grants(tokens, old, tokens.full) == [None, Grant(name=person(), rights="full")]


def test_a_rotation_that_the_store_refuses_changes_nothing(store: Store, tmp_path: Path) -> None:
    folder = home(tmp_path, "one")
    tokens = join_fleet(store, folder)
    store.close()

    with pytest.raises(StoreError):
        rotate_token(store, folder, "full")

    assert (folder / "token").read_text() == f"{tokens.full}\n"
    assert sorted(path.name for path in folder.iterdir()) == ["gateway-secret", "token", "token-readonly"]


def test_while_the_store_is_away_what_is_known_stays_and_it_is_seldom_asked(tmp_path: Path) -> None:
    moment, reads, failures = Moment(), [], [False]
    own = Grant(name="one", rights="full")

    def read() -> TokenRegistry:
        reads.append(moment.now)
        if failures[0]:
            raise StoreError("the server does not answer")
        return TokenRegistry(tokens=(TokenEntry(name="one", rights="full", digest=digest_of(b"known")),))

    tokens = AccessTokens("f", "r", read=read, now=moment)
    assert grants(tokens, "known", "unknown") == [own, None]
    failures[0] = True
    for _ in range(100):
        moment.now += 0.125
        assert grants(tokens, "known", "unknown") == [own, None]

    assert reads == [100.0, 101.0, 101.0 + AFTER_FAILURE_SECONDS, 101.0 + 2 * AFTER_FAILURE_SECONDS]


def test_running_engines_read_at_most_once_a_second(tmp_path: Path) -> None:
    moment = Moment()
    reads: list[float] = []

    def read() -> TokenRegistry:
        reads.append(moment.now)
        return TokenRegistry()

    tokens = AccessTokens("f", "r", read=read, now=moment)
    for _ in range(32):
        grants(tokens, "unknown")
        moment.now += 0.125

    assert reads == [100.0, 101.0, 102.0, 103.0]


def test_tokens_that_cannot_be_read_are_said_to_be_damaged() -> None:
    store = SqliteStore.in_memory()
    store.save_state("access_tokens", b"{")

    with pytest.raises(StoreDamaged, match="the tokens in the store are damaged"):
        read_registry(store)


def test_the_changes_of_tokens_are_events_that_say_who_made_them(store: Store, tmp_path: Path) -> None:
    folder = home(tmp_path, "one")
    with commanded_by("alice@box1 (cli)"):
        own_token_of(store, folder, "full")
        rotate_token(store, folder, "full")
        revoke_token(store, person())

    events = [stored.event for stored in store.events()]
    assert [(event.name, event.fields) for event in events] == [
        ("control.token", {"action": action, "target": person(), "by": "alice@box1 (cli)"})
        for action in ("create", "rotate", "revoke")
    ]


def test_a_token_file_that_cannot_be_replaced_stays_valid(store: Store, tmp_path: Path) -> None:
    folder = home(tmp_path, "one")
    tokens = join_fleet(store, folder)
    before = read_registry(store)
    path = folder / "token"
    path.unlink()
    path.mkdir()

    with pytest.raises(PacelineError):
        rotate_token(store, folder, "full")

    assert read_registry(store) == before
    assert grants(tokens, tokens.full) == [Grant(name=person(), rights="full")]


def test_sessions_of_one_home_may_call_the_gateway_of_another_and_outlive_a_rotation(
    store: Store, tmp_path: Path
) -> None:
    folder, moment = home(tmp_path, "one"), Moment()
    one = join_fleet(store, folder, ["work", "spare"])
    two = join_fleet(store, home(tmp_path, "two"), ["work"], now=moment)
    key = gateway_key(one.session_secret, "work").encode()

    rotate_token(store, folder, "full")

    assert [two.is_session_key(account, key) for account in ("work", "spare", "unknown")] == [True, False, False]
    assert not two.is_session_key("work", b"somebody")
    assert (two.find(key), one.find(key)) == (None, None)
    revoke_token(store, person())
    moment.now += READ_AGAIN_SECONDS
    assert not two.is_session_key("work", key)


def test_the_keys_of_sessions_outlive_a_rotated_token_and_do_not_come_from_it(store: Store, tmp_path: Path) -> None:
    folder, moment = home(tmp_path, "one"), Moment()
    running = join_fleet(store, folder, ["work"], now=moment)
    assert not running.is_session_key("work", gateway_key(running.full, "work").encode())

    rotate_token(store, folder, "full")
    moment.now += READ_AGAIN_SECONDS

    assert running.is_session_key("work", gateway_key(running.session_secret, "work").encode())


def test_the_keys_of_sessions_follow_the_accounts_of_the_settings(store: Store, tmp_path: Path) -> None:
    folder = home(tmp_path, "one")
    join_fleet(store, folder, ["work"])
    tokens = join_fleet(store, folder, ["spare"])

    keys = {account: gateway_key(tokens.session_secret, account).encode() for account in ("work", "spare")}
    assert {account: tokens.is_session_key(account, key) for account, key in keys.items()} == {
        "work": False,
        "spare": True,
    }


# -- tokens of hosts ---------------------------------------------------------------------------------------


def test_the_token_of_a_host_names_its_host_and_is_known_by_its_hash(store: Store, tmp_path: Path) -> None:
    folder = home(tmp_path, "one")
    running = join_fleet(store, folder)

    token = host_token_of(store, folder, "box1")
    again = host_token_of(store, folder, "box1")

    assert token == again
    assert token.startswith("box1.")
    assert grants(running, token) == [Grant(name="host:box1", rights="host", host="box1")]
    file = folder / "hosts" / "box1" / "token"
    assert (file.read_text(), file.stat().st_mode & 0o777) == (f"{token}\n", 0o600)
    store.close()
    assert token.encode() not in b"".join(path.read_bytes() for path in tmp_path.glob("paceline.db*"))


def test_every_home_of_a_fleet_has_a_token_for_a_host_and_all_of_them_go(store: Store, tmp_path: Path) -> None:
    one, two = home(tmp_path, "one"), home(tmp_path, "two")
    tokens = [host_token_of(store, one, "box1"), host_token_of(store, two, "box1"), host_token_of(store, one, "box2")]
    moment = Moment()
    running = join_fleet(store, one, now=moment)
    assert [grant and grant.name for grant in grants(running, *tokens)] == ["host:box1", "host:box1-2", "host:box2"]

    assert revoke_host_tokens(store, one, "box1") == 2
    moment.now += READ_AGAIN_SECONDS

    assert [grant and grant.name for grant in grants(running, *tokens)] == [None, None, "host:box2"]
    with pytest.raises(InvalidSettings, match="`paceline hosts token box1 --rotate` makes a new one"):
        host_token_of(store, two, "box1")
    assert host_token_of(store, one, "box1") not in tokens  # it was removed there, so a new one is made


def test_a_rotated_token_of_a_host_replaces_its_present_one_alone(store: Store, tmp_path: Path) -> None:
    folder = home(tmp_path, "one")
    old, other = host_token_of(store, folder, "box1"), host_token_of(store, folder, "box2")

    fresh = rotate_token(store, folder, "host", "box1")

    running = join_fleet(store, folder)
    assert [grant and grant.host for grant in grants(running, old, fresh, other)] == [None, "box1", "box2"]
    assert host_token_of(store, folder, "box1") == fresh
