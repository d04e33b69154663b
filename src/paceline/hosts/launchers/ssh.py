"""Starting a worker over ssh: the connection, the installation of Paceline there, the tunnel back, and the launcher.

Programs run with the `ssh` of this machine, so the user's configuration, keys and agent hold. A host gets the same
Paceline as here, as a wheel in a virtual environment of its own. The environment is made beside the present one and
then takes its place, so a host never has half of it; the one before stays until the next time, because a worker may
still run from it.

The leader usually listens on its own loopback alone, so the way back is a port on the host's loopback, forwarded over
ssh. A worker gets all ports that a tunnel may use, because one that is cut off may hold its port on the host for
minutes. Never here: when a tunnel is opened again (`leader/worker_supervision.py`).
"""

import base64
import contextlib
import functools
import hashlib
import io
import os
import re
import select
import shlex
import signal
import subprocess
import tempfile
import time
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

import msgspec

from paceline.errors import LaunchFailed
from paceline.hosts.launchers.detached_worker import MARK, LaunchAnswer
from paceline.hosts.launchers.interface import ProgramResult, WorkerStart, run_program, worker_home
from paceline.settings import HostSettings

CONNECT_SECONDS: Final = 15
"""How long a connection may take. A machine in a data centre answers within one, over a bad line within ten."""
KEEP_ALIVE_SECONDS: Final = 10
"""How often the other side is asked whether it is there. Three times without an answer, the connection ends."""
COMMAND_SECONDS: Final = 120.0
"""How long a command may take, without an installation. A login with a slow profile needs seconds."""
OPTIONS: Final = (
    *("-o", "BatchMode=yes"),  # nobody is there to type a password
    *("-o", f"ConnectTimeout={CONNECT_SECONDS}"),
    *("-o", f"ServerAliveInterval={KEEP_ALIVE_SECONDS}"),
    *("-o", "ServerAliveCountMax=3"),
    *("-o", "ControlMaster=no"),  # a shared connection could end while a worker is started over it
    *("-o", "ControlPath=none"),
)
_SSH_FAILED: Final = 255
_LONGEST_SHOWN: Final = 400
_ADVICE: Final = (
    (
        r"host key verification failed|remote host identification has changed",
        "its key is not known or has changed",
        "check the key, and connect once by hand to accept it: ssh {destination}",
    ),
    (
        r"permission denied|too many authentication failures",
        "it does not accept your key",
        "let `ssh -o BatchMode=yes {destination} true` work first: ssh-copy-id {destination}, or ssh-add for one with "
        "a passphrase",
    ),
    (
        r"could not resolve|name or service not known|temporary failure in name",
        "its name cannot be resolved",
        "correct the name, or add it to ~/.ssh/config",
    ),
    (r"connection refused", "nothing listens there", "start its SSH server, or correct the port: ssh://user@host:port"),
    (
        r"timed out|no route to host|network is unreachable|operation timed out",
        "it does not answer",
        "start the machine, or check the network and its firewall",
    ),
)
"""What ssh prints, what it means, and what to do about it."""


class SshConnection:
    """One destination. `options` are further arguments for ssh; tests use them."""

    def __init__(self, host: str, destination: str, options: tuple[str, ...] = ()) -> None:
        self.host = host
        self.destination = destination
        self.options = options

    def argv(self, *arguments: str) -> list[str]:
        """Return the command that connects. Arguments before the destination are options of ssh."""
        return ["ssh", *OPTIONS, *self.options, *arguments, "--", self.destination]

    def run(self, script: str, content: bytes = b"", *, seconds: float = COMMAND_SECONDS) -> ProgramResult:
        """Run a script of the POSIX shell there, with the content as its input.

        Raise `LaunchFailed` if the machine cannot be reached or does not answer in time. Any login shell of the user
        there understands the one quoted word after `sh -c`.
        """
        argv = [*self.argv("-T"), f"exec sh -c {shlex.quote(script)}"]
        silent = (
            f"host {self.host}: ssh {self.destination} did not finish within {seconds:g} s; check the load there, "
            "and that its login files do not wait for input"
        )
        try:
            result = run_program(argv, seconds=seconds, silent=silent, content=content)
        except OSError as error:
            raise LaunchFailed(
                f"host {self.host}: ssh cannot be run here ({error.strerror}); install the OpenSSH client"
            ) from error
        if result.code == _SSH_FAILED:
            raise LaunchFailed(self.failure(result.errors))
        return result

    def failure(self, errors: str) -> str:
        """Return what is wrong with the connection, and what to do about it, by what ssh has printed."""
        last = last_line_of(errors) or "ssh gave no reason"
        for pattern, what, fix in _ADVICE:
            if re.search(pattern, errors, re.IGNORECASE):
                fix = fix.format(destination=self.destination)
                return f"host {self.host}: ssh {self.destination} failed, {what} ({last}); {fix}"
        return f"host {self.host}: ssh {self.destination} failed: {last}; try it by hand"


def last_line_of(text: str) -> str:
    """Return the last line that says something, cut to what fits into a message."""
    lines = [line.strip() for line in text.splitlines() if line.strip(" -@")]
    return lines[-1][:_LONGEST_SHOWN] if lines else ""


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


FIRST_PORT: Final = 20_000
PORTS: Final = 12_000
"""Ports from which those of tunnels are chosen: below those that systems give to connections by themselves."""
CANDIDATES: Final = 3
"""Ports per host: one that works, one that a cut connection still holds, one that another program has."""
READY_SECONDS: Final = CONNECT_SECONDS + 15.0
"""How long a tunnel may take to open: the connection, and a login with a slow profile."""
_READY: Final = "paceline-tunnel-ready"


def tunnel_ports(identity: str, host: str) -> tuple[int, ...]:
    """Return the ports on a host that its tunnels may use, for one leader or one fleet: always the same."""
    digest = hashlib.sha256(f"{identity}\0{host}".encode()).digest()
    first = int.from_bytes(digest[:4]) % PORTS
    return tuple(FIRST_PORT + (first + step * PORTS // CANDIDATES) % PORTS for step in range(CANDIDATES))


class SshTunnel:
    """One tunnel to the address of the leader. It is open as long as its ssh runs, and never longer than this process.

    `leader` is where the leader listens on this machine: `127.0.0.1:7433`.
    """

    def __init__(self, host: HostSettings, ports: tuple[int, ...], leader: str, options: tuple[str, ...] = ()) -> None:
        assert host.ssh is not None
        self._connection = SshConnection(host.name, host.ssh, options)
        self._ports = ports
        self._leader = leader
        self._process: subprocess.Popen[bytes] | None = None
        self.port: int | None = None
        """The port on the host, while the tunnel is open."""

    @property
    def is_open(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def open(self) -> None:
        """Open the tunnel unless it is open. It tries one port after the other. Raise `LaunchFailed` if none works."""
        if self.is_open:
            return
        self.close()
        for port in self._ports:
            refused = self._try(port)
            if not refused:
                self.port = port
                return
            if "forwarding failed" not in refused:
                raise LaunchFailed(self._connection.failure(refused))
        ports = ", ".join(str(port) for port in self._ports)
        raise LaunchFailed(
            f"host {self._connection.host}: no tunnel back to the leader can be opened there (ports {ports}): allow "
            "AllowTcpForwarding in its sshd_config, or let the leader listen with TLS and set connect for the host"
        )

    def close(self) -> None:
        process, self._process, self.port = self._process, None, None
        if process is not None:
            _end(process)

    def _try(self, port: int) -> str:
        """Try one port, and return what ssh has printed if it failed.

        The program on the other side reports that the port is open. It ends with its input, so that the tunnel ends
        with this process, also with one that is killed.
        """
        forward = f"127.0.0.1:{port}:{self._leader}"
        argv = self._connection.argv("-T", "-o", "ExitOnForwardFailure=yes", "-R", forward)
        with tempfile.TemporaryFile() as errors:
            try:
                process = subprocess.Popen(
                    [*argv, f"exec sh -c 'echo {_READY}; exec cat >/dev/null'"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,
                )
            except OSError as error:
                return f"ssh cannot be run: {error.strerror}"
            if _becomes_ready(process):
                self._process = process
                return ""
            _end(process)
            errors.seek(0)
            return errors.read().decode(errors="replace") or "it timed out"


def _becomes_ready(process: "subprocess.Popen[bytes]") -> bool:
    assert process.stdout is not None
    give_up_at = time.monotonic() + READY_SECONDS
    printed = b""
    while _READY.encode() not in printed:
        left = give_up_at - time.monotonic()
        if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
            return False
        piece = os.read(process.stdout.fileno(), 4096)
        if not piece:
            return False
        printed += piece
    return True


def _end(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


_MODULE = "paceline.hosts.launchers.detached_worker"
_MISSING = 127
"""What the shell there ends with if the program is missing."""


class SshLauncher:
    """Starts, finds and ends the worker of one host over ssh. It keeps no connection open.

    `options` are further arguments for ssh; tests use them.
    """

    def __init__(self, host: HostSettings, options: tuple[str, ...] = ()) -> None:
        assert host.ssh is not None
        self._host = host
        self._connection = SshConnection(host.name, host.ssh, options)
        self._nobody = WorkerStart(name=host.name, home=worker_home(host))

    def install(self) -> bool:
        """Install Paceline there, unless it is the same already or the host brings its own. Return whether it did."""
        return self._host.python is None and install_paceline(self._connection)

    def start(self, worker: WorkerStart) -> None:
        self.install()
        self._ask("start", worker)

    def is_alive(self) -> bool | None:
        answer = self._ask("alive", self._nobody, if_missing=LaunchAnswer())
        return answer.pid is not None

    def stop(self) -> None:
        self._ask("stop", self._nobody, if_missing=LaunchAnswer())

    def describe(self) -> str:
        return f"ssh {self._host.ssh}"

    def _ask(self, action: str, worker: WorkerStart, *, if_missing: LaunchAnswer | None = None) -> LaunchAnswer:
        """Run the host's own side of a launch, in the environment of a login: agent CLIs are on its PATH."""
        path = self._host.python or PYTHON
        there = f'"$HOME"{shlex.quote(path[1:])}' if path.startswith("~/") else shlex.quote(path)
        # The login shell may be any: it gets the path in a variable, and need not understand quotes.
        script = (
            f"PACELINE_PYTHON={there}\n"
            f'[ -x "$PACELINE_PYTHON" ] || exit {_MISSING}\n'
            "export PACELINE_PYTHON\n"
            f'exec "${{SHELL:-/bin/sh}}" -lc \'exec "$PACELINE_PYTHON" -m {_MODULE} {action}\'\n'
        )
        result = self._connection.run(script, msgspec.json.encode(worker))
        if result.code == _MISSING and MARK not in result.output:
            if if_missing is not None:
                return if_missing
            raise LaunchFailed(
                f"host {self._host.name}: there is no Python with Paceline at {path}; install it, or correct python in "
                "the settings of the host"
            )
        lines = [line for line in result.output.splitlines() if line.startswith(MARK)]
        if not lines:
            words = last_line_of(result.errors) or last_line_of(result.output) or "it printed nothing"
            raise LaunchFailed(
                f"host {self._host.name}: Paceline there did not answer (exit code {result.code}): {words}"
            )
        answer = msgspec.json.decode(lines[-1].removeprefix(MARK), type=LaunchAnswer)
        if answer.error is not None:
            raise LaunchFailed(f"host {self._host.name}: {answer.error}")
        return answer
