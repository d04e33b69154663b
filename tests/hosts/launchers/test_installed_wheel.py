"""The running installation as a wheel."""

import io
import zipfile
from importlib.metadata import version

import paceline
from paceline.hosts.launchers.ssh import installation_id, wheel_bytes, wheel_name


def test_the_wheel_has_every_file_of_the_package_and_its_metadata() -> None:
    with zipfile.ZipFile(io.BytesIO(wheel_bytes())) as wheel:
        names = set(wheel.namelist())
        metadata = wheel.read(f"paceline-{version('paceline')}.dist-info/METADATA").decode()
        record = wheel.read(f"paceline-{version('paceline')}.dist-info/RECORD").decode()
        init = wheel.read("paceline/__init__.py")

    assert {
        "paceline/agents/claude/claude.toml",
        "paceline/hosts/launchers/detached_worker.py",
        "paceline/py.typed",
    } <= names
    assert not any("__pycache__" in name for name in names)
    assert "Requires-Dist: msgspec" in metadata
    assert {line.split(",")[0] for line in record.splitlines()} == names
    assert paceline.__file__ is not None
    with open(paceline.__file__, "rb") as file:
        assert init == file.read()


def test_the_same_installation_gives_the_same_wheel_and_the_same_id() -> None:
    assert wheel_bytes() == wheel_bytes()
    assert installation_id().startswith(f"{version('paceline')}+")
    assert wheel_name() == f"paceline-{version('paceline')}-py3-none-any.whl"
