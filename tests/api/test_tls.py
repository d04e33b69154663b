"""The certificate of the settings, and the addresses that need one."""

import ssl
import subprocess
from pathlib import Path

import pytest
from tests.certificates import Certificate, make_certificate

from paceline.api.server import ServerCertificate, check_exposure, is_exposed, load_certificate
from paceline.errors import InvalidInput, InvalidSettings
from paceline.settings.model import ApiTable


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def api(cert: Path, key: Path | None) -> ApiTable:
    return ApiTable(tls_cert=str(cert), tls_key=None if key is None else str(key))


def test_a_certificate_and_its_key_may_be_two_files_or_one(certificate: Certificate, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(certificate.key.read_bytes() + certificate.cert.read_bytes())

    assert load_certificate(ApiTable()) is None
    assert load_certificate(api(certificate.cert, certificate.key)) is not None
    assert load_certificate(api(both, None)) is not None


def test_a_file_that_cannot_be_used_is_named(certificate: Certificate, tmp_path: Path) -> None:
    locked, other, text = tmp_path / "locked.pem", make_certificate(tmp_path / "other"), tmp_path / "text"
    encrypt = ["openssl", "pkey", "-in", certificate.key, "-aes256", "-passout", "pass:secret", "-out", locked]
    subprocess.run([str(part) for part in encrypt], check=True, capture_output=True)
    text.write_text("no certificate")
    cases = {
        (tmp_path / "none.pem", certificate.key): f"api.tls_cert: {tmp_path}/none.pem cannot be read: No such file",
        (certificate.cert, tmp_path): f"api.tls_key: {tmp_path} cannot be read: Is a directory",
        (certificate.cert, other.key): f"api.tls_key: {other.key} is not the key of the certificate {certificate.cert}",
        (certificate.cert, locked): "api.tls_key: the key has a password; remove it with: openssl pkey",
        (certificate.cert, None): f"api.tls_cert: {certificate.cert} does not hold a certificate and its key",
        (text, certificate.key): f"api.tls_cert: {text} with {certificate.key} is not a certificate and its key",
    }
    for (cert, key), message in cases.items():
        with pytest.raises(InvalidSettings) as refused:
            load_certificate(api(cert, key))
        assert str(refused.value).startswith(message)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "::1"])
def test_the_loopback_needs_no_tls(host: str) -> None:
    assert check_exposure(host, None, insecure=False) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.7", "fe80::1"])
def test_other_addresses_need_tls_or_the_word_of_a_person(host: str, certificate: Certificate) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_exposure(host, None, insecure=False)
    warning = check_exposure(host, None, insecure=True)

    for fix in ("tls_cert and tls_key in [api]", "127.0.0.1", "ssh tunnel", "reverse proxy", "--insecure"):
        assert fix in str(refused.value)
    assert warning is not None
    assert warning.startswith(f"{host} is served without TLS")
    assert check_exposure(host, load_certificate(api(certificate.cert, certificate.key)), insecure=False) is None


def test_an_address_that_no_server_can_have_is_left_to_the_server() -> None:
    assert not is_exposed("no such host")


def test_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    present, renewed = make_certificate(tmp_path / "present"), make_certificate(tmp_path / "renewed")
    served = load_certificate(api(present.cert, present.key))
    assert served is not None

    present.cert.write_bytes(renewed.cert.read_bytes())
    served.refresh()
    served.refresh()
    assert _is_trusted(served, present) == (True, False)
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "the certificate was changed and cannot be used, so the present one stays"
    ]
    renewed.key.replace(present.key)
    served.refresh()

    assert _is_trusted(served, present) == (False, False)
    assert _is_trusted(served, renewed) == (True, False)
    present.cert.unlink()
    served.refresh()
    assert _is_trusted(served, renewed) == (True, False)


def _is_trusted(served: ServerCertificate, certificate: Certificate) -> tuple[bool, bool]:
    """Return whether a client that knows the authority accepts the server, and whether one that does not."""
    knowing = ssl.create_default_context(cafile=certificate.authority)
    return _shake_hands(served.context, knowing), _shake_hands(served.context, ssl.create_default_context())


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> bool:
    """Return whether the two ends agree, in memory."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [server.wrap_bio(up, down, server_side=True), client.wrap_bio(down, up, server_hostname="localhost")]
    for _ in range(3):
        for end in reversed(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
    return True
