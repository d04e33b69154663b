"""Installing Paceline on a host over ssh: the same as here, in a virtual environment of its own.

The environment is made beside the present one and then takes its place, so a host never has half of it. The one
before stays until the next time, because a worker may still run from it. Never here: starting a worker.
"""

import re
import shlex
from typing import Final

from paceline.errors import LaunchFailed
from paceline.hosts.launchers.installed_wheel import installation_id, wheel_bytes, wheel_name
from paceline.hosts.launchers.ssh_connection import SshConnection, last_line_of

FOLDER: Final = "$HOME/.local/share/paceline"
PYTHON: Final = "~/.local/share/paceline/venv/bin/python"
INSTALL_SECONDS: Final = 900.0
"""How long an installation may take: a slow line loads 60 MB of dependencies in some minutes."""
_MARK: Final = "paceline-host: "
_PROBE: Final = f"""
echo "{_MARK}installed=$(cat "{FOLDER}/venv/paceline-id" 2>/dev/null)"
for python in python3.14 python3.13 python3.12 python3.11 python3 "$HOME/.local/bin/python3"; do
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
  echo "{_MARK}python=$(command -v "$python") $version"
done
"""
_INSTALL: Final = """
set -e
umask 077
python=@PYTHON@
folder="@FOLDER@"
mkdir -p "$folder"
fresh="$folder/venv.new.$$"
wheel="$folder/wheel.$$"
trap 'rm -rf "$fresh" "$wheel"' EXIT
mkdir "$wheel"
cat > "$wheel/@WHEEL@"
"$python" -m venv "$fresh"
"$fresh/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "$wheel/@WHEEL@"
printf %s @ID@ > "$fresh/paceline-id"
rm -rf "$folder/venv.old"
if [ -e "$folder/venv" ]; then mv "$folder/venv" "$folder/venv.old"; fi
mv "$fresh" "$folder/venv"
"""


def install_paceline(connection: SshConnection) -> bool:
    """Make sure that the host has what runs here. Return whether anything was installed.

    Raise `LaunchFailed` with what is missing there.
    """
    found = _probe(connection)
    if found.get("installed") == [installation_id()]:
        return False
    python = _suitable_python(connection, found.get("python", []))
    values = {"PYTHON": shlex.quote(python), "FOLDER": FOLDER, "WHEEL": wheel_name(), "ID": installation_id()}
    script = re.sub(r"@([A-Z]+)@", lambda name: values[name[1]], _INSTALL)
    result = connection.run(script, wheel_bytes(), seconds=INSTALL_SECONDS)
    if result.code != 0:
        raise LaunchFailed(_failure(connection, python, result.errors or result.output))
    return True


def _probe(connection: SshConnection) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in connection.run(_PROBE).output.splitlines():
        if line.startswith(_MARK):
            key, _, value = line.removeprefix(_MARK).partition("=")
            found.setdefault(key, []).append(value)
    if not found:
        raise LaunchFailed(
            f"host {connection.host}: ssh {connection.destination} runs no commands there; it must allow a shell"
        )
    return found


def _suitable_python(connection: SshConnection, found: list[str]) -> str:
    """Return the first Python that is new enough."""
    versions = []
    for entry in found:
        path, _, version = entry.rpartition(" ")
        major, _, minor = version.partition(".")
        if (int(major), int(minor)) >= (3, 11):
            return path
        versions.append(version)
    has = f"it has {', '.join(dict.fromkeys(versions))}" if versions else "it has no python3"
    raise LaunchFailed(
        f"host {connection.host}: Paceline needs Python 3.11 or newer there, and {has}; install one, for example with "
        "`uv python install 3.12 --default`, or name a Python that has Paceline: python in the settings of the host"
    )


def _failure(connection: SshConnection, python: str, errors: str) -> str:
    where = f"host {connection.host}: Paceline cannot be installed there"
    if "ensurepip" in errors or "No module named venv" in errors:
        return f"{where}: {python} cannot make a virtual environment; on Debian install the package python3-venv"
    if "No space left" in errors:
        return f"{where}: its disk is full"
    if "No matching distribution" in errors or "Could not find a version" in errors or "connection" in errors.lower():
        return (
            f"{where}: pip finds no packages ({last_line_of(errors)}); give it a package index (pip.conf), or install "
            "Paceline there by hand and name its Python: python in the settings of the host"
        )
    return f"{where}: {last_line_of(errors)}"
