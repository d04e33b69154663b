"""An upstream over TLS: its certificate is checked, and bytes and endings are the same."""

import asyncio
import ssl
import subprocess
from pathlib import Path

import pytest
from tests.gateway.gateway_harness import GatewayHarness, account, until
from tests.gateway.raw_http import LOOPBACK, Wire, connect, ok, post

BODY = bytes(range(256)) * 4000


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a key and a self-signed certificate for the loopback address, in one file."""
    folder = tmp_path_factory.mktemp("tls")
    key, signed, both = folder / "key.pem", folder / "signed.pem", folder / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=fake-provider",
         "-addext", f"subjectAltName=IP:{LOOPBACK}", "-keyout", str(key), "-out", str(signed)],
        check=True, capture_output=True,
    )  # fmt: skip
    both.write_bytes(key.read_bytes() + signed.read_bytes())
    return both


async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    wire = Wire(reader, writer)
    try:
        while True:
            request = await wire.read_message()
            wire.send(ok(request.body))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
        writer.close()


async def serve(certificate: Path) -> asyncio.Server:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    return await asyncio.start_server(handle, LOOPBACK, 0, ssl=context)


def url_of(server: asyncio.Server) -> str:
    return f"https://{LOOPBACK}:{server.sockets[0].getsockname()[1]}"


async def test_bodies_are_forwarded_over_tls(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    server = await serve(certificate)
    async with server, GatewayHarness(account(url_of(server))) as harness, await connect(harness.port) as client:
        for _ in range(3):
            client.send(post(BODY))
            got = await client.read_message()
            assert (got.status, got.body) == (200, BODY)
        client.send(post(BODY))
        client.reset()
        await until(lambda: harness.in_flight == 0 and not harness.gateway.live)


async def test_an_untrusted_certificate_is_rejected(certificate: Path) -> None:
    server = await serve(certificate)
    async with server, GatewayHarness(account(url_of(server))) as harness, await connect(harness.port) as client:
        client.send(post())
        got = await client.read_message()

        assert (got.status, harness.in_flight) == (502, 0)
        assert b"certificate" in got.body
