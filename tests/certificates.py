"""A certificate authority of a test, and a certificate that it has signed for the loopback addresses."""

import subprocess
from pathlib import Path

import msgspec

NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """Files in PEM form: the authority that clients trust, and the certificate and the key of the server."""

    authority: Path
    cert: Path
    key: Path

    @property
    def settings(self) -> str:
        return f'[api]\ntls_cert = "{self.cert}"\ntls_key = "{self.key}"\n'


def make_certificate(folder: Path) -> Certificate:
    """Create an authority and a certificate for `localhost` and 127.0.0.1."""
    folder.mkdir(exist_ok=True)
    authority, authority_key = folder / "authority.pem", folder / "authority-key.pem"
    request, cert, key = folder / "request.pem", folder / "cert.pem", folder / "key.pem"
    names = folder / "names"
    names.write_text(NAMES)
    fresh = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    _openssl(*fresh, "-x509", "-days", "2", "-subj", "/CN=authority", "-keyout", authority_key, "-out", authority)
    _openssl(*fresh, "-subj", "/CN=paceline", "-keyout", key, "-out", request)
    signing: list[str | Path] = [
        "x509",
        "-req",
        "-in",
        request,
        "-CA",
        authority,
        "-CAkey",
        authority_key,
        "-CAcreateserial",
    ]
    _openssl(*signing, "-days", "2", "-extfile", names, "-out", cert)
    return Certificate(authority=authority, cert=cert, key=key)


def _openssl(*argv: str | Path) -> None:
    subprocess.run(["openssl", *map(str, argv)], check=True, capture_output=True)
