"""The token of a host: it is good for the requests of that host's worker, and for nothing else."""

import asyncio
from urllib.parse import urlsplit

import httpx
import pytest
from tests.daemon import Daemon

from paceline.api.tokens import READ_AGAIN_SECONDS, host_token_of, revoke_host_tokens

OWN = "/v1/hosts/box1/join"
OTHERS = (
    "/v1/hosts/box2/join",
    "/v1/hosts/box1",
    "/v1/hosts/box1/",
    "/v1/hosts/box1/join/",
    "/v1/hosts/Box1/join",
    "/V1/hosts/box1/join",
    "/v1/hosts/box1//join",
    "/v1/hosts/box1/../box2/join",
    "/v1/hosts/box1/..%2Fbox2/join",
    "/v1/hosts/box1/%2e%2e/box2/join",
    "/v1/hosts/box1%2Fjoin",
    "/v1/hosts%2Fbox1/join",
    "/v1/hosts/%62ox1/join",
    "/v1/hosts/box1/join%3Fx",
    "/v1/hosts/box1/join%0a",
    "/v1/hosts/box1/../../pause",
    "//v1/hosts/box1/join",
    "/v1/hosts/box1.x/join",
    "/v1/hosts/box1;/join",
    "/gateway/max-1/v1/messages",
    "/?token=x",
)


@pytest.fixture
def host_token(daemon: Daemon) -> str:
    return host_token_of(daemon.store, daemon.home.path, "box1")


async def test_a_stolen_host_token_opens_no_route_of_the_server(daemon: Daemon, host_token: str) -> None:
    document = await daemon.get("/openapi.json")
    routes = [(method.upper(), path) for path, methods in document["paths"].items() for method in methods]
    others = [(method, path) for method, path in routes if (method, path[:10]) != ("POST", "/v1/hosts/")]
    assert len(others) > 30
    async with daemon.new_client(await _known(daemon, host_token)) as thief:
        codes = {
            (method, path): (await thief.request(method, path.replace("{", "").replace("}", ""))).status_code
            for method, path in others
            if path != "/healthz"
        }
        pages = [(await thief.get(path)).status_code for path in ("/", "/assets/app.js", "/openapi.json", "/metrics")]

    assert set(codes.values()) == {403}, codes
    assert pages == [403] * 4


async def test_it_is_good_for_the_requests_of_its_own_worker(daemon: Daemon, host_token: str) -> None:
    async with daemon.new_client(await _known(daemon, host_token)) as worker:
        answer = await worker.post(OWN, content=b"{}")
        reads = [(await worker.request(method, OWN)).status_code for method in ("GET", "HEAD", "PUT", "DELETE")]

    assert answer.status_code not in (401, 403, 421)
    assert reads == [403] * 4


@pytest.mark.parametrize("path", OTHERS)
async def test_no_spelling_of_a_path_leads_elsewhere(daemon: Daemon, host_token: str, path: str) -> None:
    token = await _known(daemon, host_token)

    assert await _post(daemon, path, token) in (b"400", b"401", b"403")


async def _post(daemon: Daemon, path: str, token: str) -> bytes:
    """Send the path as it is: a client library would tidy it up."""
    at = urlsplit(daemon.url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: {at.netloc}",
        f"Authorization: Bearer {token}",
        "Content-Length: 0",
        "",
        "",
    ]
    writer.write("\r\n".join(lines).encode())
    status = (await reader.readline()).split(b" ")[1]
    writer.close()
    return status


async def test_it_opens_no_page(daemon: Daemon, host_token: str) -> None:
    token = await _known(daemon, host_token)
    async with daemon.new_client() as browser:
        opened = await browser.get("/", params={"token": token})

    assert opened.status_code == 401
    assert "set-cookie" not in opened.headers
    assert daemon.tokens.find_cookie(daemon.tokens.keep_cookie(token.encode()), b"") is None
    assert not daemon.tokens.has_full_rights(token.encode())


async def test_a_full_token_may_ask_for_any_host_and_a_read_only_one_for_none(daemon: Daemon) -> None:
    async with daemon.new_client(daemon.tokens.read_only) as reader:
        read = await reader.post(OWN, content=b"{}")
    full = await daemon.client.post(OWN, content=b"{}")

    assert read.status_code == 403
    assert full.status_code not in (401, 403)


async def test_a_worker_may_come_through_a_tunnel_with_another_port(daemon: Daemon, host_token: str) -> None:
    token = await _known(daemon, host_token)

    async def code(client: httpx.AsyncClient, host: str, path: str = OWN) -> int:
        return (await client.post(path, content=b"{}", headers={"host": host})).status_code

    async with daemon.new_client(token) as worker, daemon.new_client() as stranger:
        assert await code(worker, "127.0.0.1:21000") not in (401, 403, 421)
        assert await code(worker, "localhost:21000") not in (401, 403, 421)
        assert await code(worker, "evil.example:21000") == 421
        assert await code(worker, "127.0.0.1:21000", "/v1/pause") == 421
        assert await code(stranger, "127.0.0.1:21000") == 421


async def test_a_revoked_host_token_is_refused(daemon: Daemon, host_token: str) -> None:
    async with daemon.new_client(await _known(daemon, host_token)) as worker:
        revoke_host_tokens(daemon.store, daemon.home.path, "box1")
        daemon.tokens._read_at -= READ_AGAIN_SECONDS
        refused = await worker.post(OWN, content=b"{}")

    assert refused.status_code == 401
    assert "`paceline hosts token NAME` on the leader prints the token of a host" in refused.json()["detail"]


async def _known(daemon: Daemon, token: str) -> str:
    """Return the token once the daemon knows it: it reads the registry once a second."""
    daemon.tokens._read_at -= READ_AGAIN_SECONDS
    assert daemon.tokens.find(token.encode()) is not None
    return token
