"""The running installation of Paceline as a wheel, so that a host gets exactly the same.

It also works for an installation whose files are elsewhere, as that of a developer. Never here: where it goes.
"""

import base64
import functools
import hashlib
import io
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every file in the wheel: the same installation gives the same bytes."""
_WHEEL: Final = "Wheel-Version: 1.0\nGenerator: paceline\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def wheel_name() -> str:
    return f"paceline-{distribution('paceline').version}-py3-none-any.whl"


def wheel_bytes() -> bytes:
    """Return the wheel. It names what Paceline depends on, and does not contain it."""
    found = distribution("paceline")
    info = f"paceline-{found.version}.dist-info"
    files = {f"paceline/{name}": content for name, content in _package_files()}
    files[f"{info}/METADATA"] = (found.read_text("METADATA") or "").encode()
    files[f"{info}/entry_points.txt"] = (found.read_text("entry_points.txt") or "").encode()
    files[f"{info}/WHEEL"] = _WHEEL.encode()
    record = "".join(f"{name},sha256={_record_digest(content)},{len(content)}\n" for name, content in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            wheel.writestr(entry, content)
    return packed.getvalue()


@functools.cache
def installation_id() -> str:
    """Return what two installations have in common if and only if they are the same: the version and a digest."""
    digest = hashlib.sha256()
    for name, content in _package_files():
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return f"{distribution('paceline').version}+{digest.hexdigest()[:16]}"


def _package_files() -> list[tuple[str, bytes]]:
    folder = Path(__file__).parents[2]
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return [(path.relative_to(folder).as_posix(), path.read_bytes()) for path in paths]


def _record_digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
