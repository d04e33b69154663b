"""What a call costs the gateway: what is done once for many calls, and not again for each of them."""

from collections.abc import Sequence

from tests.gateway.gateway_harness import GatewayHarness, account
from tests.gateway.raw_http import RawUpstream, answering, connect, ok, post

from paceline.engine.commands import digest_of_key
from paceline.gateway import ClientKeys
from paceline.store import ClientKey, HashedKey

TEAM = "pk-paceline-team-secret"


async def test_many_calls_with_a_key_read_the_keys_twice_a_second_and_never_compare_it_with_tokens() -> None:
    now, read_at, compared = [0.0], list[float](), list[bytes]()

    def read() -> Sequence[HashedKey]:
        read_at.append(now[0])
        return [HashedKey(ClientKey(name="team"), digest_of_key(TEAM.encode()))]

    def is_token(given: bytes) -> bool:
        compared.append(given)
        return False

    def is_session_key(account: str, given: bytes) -> bool:
        return is_token(given)

    async with (
        RawUpstream(answering(ok(), [])) as upstream,
        GatewayHarness(
            account(upstream.url),
            keys=ClientKeys(read, now=lambda: now[0]),
            is_token=is_token,
            is_session_key=is_session_key,
        ) as harness,
        await connect(harness.port) as client,
    ):
        for _ in range(16):
            client.send(post(b'{"model": "opus-4-6"}', key=f"x-api-key: {TEAM}".encode()))
            assert (await client.read_message()).status == 200
            now[0] += 0.0625

    assert (read_at, compared) == ([0.0, 0.5], [])
