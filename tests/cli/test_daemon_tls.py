"""`paceline up` for other machines: with TLS, and not without it."""

import asyncio
import os
import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from tests.certificates import Certificate, make_certificate
from tests.cli.shell import PATIENCE_SECONDS, Shell
from tests.cli.test_daemon import end

from paceline import Client
from paceline.errors import DaemonError

SLOT = """
import asyncio
from paceline import Client
async def main():
    async with Client() as client, client.slot("anthropic/max-1/opus-4-6") as slot:
        print(slot.scope)
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize("where", [("--host", "0.0.0.0"), ()])
def test_an_open_address_without_tls_is_refused(shell: Shell, where: tuple[str, ...]) -> None:
    if not where:
        (shell.folder / "paceline.toml").write_text('[api]\nhost = "0.0.0.0"\n')
    _, refused = shell.run("up", "--port", "0", *where, code=2)
    process, line = shell.up("--insecure", *where)

    assert refused.startswith("Error: 0.0.0.0 can be reached from other machines, and without TLS")
    assert line.startswith("Paceline is up: http://127.0.0.1:")
    assert end(process)[0] == 0
    assert (shell.home / "paceline.log").read_text().count("0.0.0.0 is served without TLS") == 1


def test_a_certificate_that_cannot_be_used_starts_nothing(shell: Shell, certificate: Certificate) -> None:
    (shell.folder / "paceline.toml").write_text('[api]\ntls_cert = "mine.pem"\n')
    _, missing = shell.run("up", "--port", "0", code=2)
    (shell.folder / "paceline.toml").write_text('[api]\ntls_key = "mine.pem"\n')
    _, half = shell.run("up", "--port", "0", code=2)

    assert missing == f"Error: api.tls_cert: {shell.folder}/mine.pem cannot be read: No such file or directory\n"
    assert "api.tls_key is the key of a certificate: set tls_cert too" in half
    assert not (shell.home / "url").exists()


def test_with_tls_everything_is_encrypted_and_clients_check_the_certificate(
    shell: Shell, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shell.folder / "paceline.toml").write_text(f'{certificate.settings}hosts = ["localhost"]\n')
    process, line = shell.up("--host", "0.0.0.0")
    base, _, token = line.removeprefix("Paceline is up: ").partition("/?token=")
    trusted = ssl.create_default_context(cafile=certificate.authority)
    headers = {"authorization": f"Bearer {token}"}
    with httpx.Client(base_url=base, verify=trusted, trust_env=False) as client:
        opened = client.get(f"/?token={token}")
        status = client.get("/v1/status", headers=headers)
        refused = client.post("/gateway/nobody/v1/messages", headers={"x-api-key": token}, json={})
        with client.stream("GET", "/v1/events?after=0", headers=headers) as events:
            first = next(line for line in events.iter_lines() if "engine.leading" in line)
        with pytest.raises(httpx.RemoteProtocolError):
            client.get(f"{base.replace('https', 'http')}/healthz")

    assert base.startswith("https://localhost:")
    assert (shell.home / "url").read_text() == f"{base}\n"
    assert opened.headers["set-cookie"].endswith("; HttpOnly; SameSite=Strict; Secure")
    assert (status.status_code, refused.status_code) == (200, 404)
    assert first.startswith("data: ")
    slot = _run_program(shell.folder, {**shell.env, "SSL_CERT_FILE": str(certificate.authority)})
    assert slot == "anthropic/max-1/opus-4-6"
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with pytest.raises(DaemonError, match=r"certificate .* SSL_CERT_FILE"):
        asyncio.run(_take_slot(base, token))
    assert end(process)[0] == 0


def _run_program(folder: Path, env: dict[str, str]) -> str:
    """Run a program that finds the daemon and its token in the home."""
    done = subprocess.run(
        [sys.executable, "-c", SLOT], cwd=folder, env={**env, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


async def _take_slot(url: str, token: str) -> None:
    async with Client(url, token) as client, client.slot("anthropic/max-1/opus-4-6"):
        pass
