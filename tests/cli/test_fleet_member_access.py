"""Tokens and keys in a fleet: every member accepts those of all homes, as long as they are not revoked."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.cli.test_wiring_postgres import as_address
from tests.fleet import PATIENCE_SECONDS, Fleet, Member, fleet_in, until
from tests.postgres_server import empty_schema

from paceline.agents.account import gateway_key
from paceline.testing import FakeProvider

CALL = {"model": "claude-opus-4-6", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def fleet(tmp_path: Path, postgres_url: str) -> Iterator[Fleet]:
    with empty_schema(postgres_url) as url, fleet_in(tmp_path, as_address(url)) as made:
        yield made


def call(member: Member, key: str) -> int:
    headers = {"x-api-key": key, "content-type": "application/json"}
    return httpx.post(
        f"{member.url}/gateway/work/v1/messages", headers=headers, json=CALL, timeout=PATIENCE_SECONDS, trust_env=False
    ).status_code


def read(member: Member, token: str) -> int:
    headers = {"authorization": f"Bearer {token}"}
    return httpx.get(f"{member.url}/v1/pool", headers=headers, timeout=PATIENCE_SECONDS, trust_env=False).status_code


def test_sessions_and_users_of_a_standby_reach_the_gateway_of_the_leader(fleet: Fleet) -> None:
    with FakeProvider() as provider:
        account = f'provider = "anthropic"\nkind = "metered"\nbase_url = "{provider.url}"\nvia_gateway = true\n'
        (fleet.folder / "paceline.toml").write_text(f"[accounts.work]\n{account}")
        first, second = fleet.up("a"), fleet.up("b")
        until(lambda: first.state == "leading")
        secret = (fleet.folder / "b" / "gateway-secret").read_text().strip()
        session_key = gateway_key(secret, "work")

        answers = [call(member, key) for member in (first, second) for key in (session_key, second.token, "somebody")]

        assert (answers, len(provider.requests)) == ([200, 200, 401, 200, 200, 401], 4)


def test_a_rotated_token_is_refused_and_accepted_by_all_members(fleet: Fleet) -> None:
    first, second = fleet.up("a"), fleet.up("b")
    until(lambda: first.state == "leading")
    assert [read(member, second.token) for member in (first, second)] == [200, 200]

    fresh = fleet.run("token", "--rotate", env=second.env).strip()

    answers = [(member, token) for member in (first, second) for token in (second.token, fresh)]
    until(lambda: [read(member, token) for member, token in answers] == [401, 200, 401, 200])
    second.http.headers["authorization"] = f"Bearer {fresh}"
    changed = second.http.put("/v1/pool", json={"sessions": 7})
    assert (changed.status_code, changed.json()) == (200, {"sessions": 7})
