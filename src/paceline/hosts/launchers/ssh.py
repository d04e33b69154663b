"""Starting a worker over ssh. Paceline is installed there first, unless the host has it."""

import shlex

import msgspec

from paceline.errors import LaunchFailed
from paceline.hosts.launchers.detached_worker import MARK, LaunchAnswer
from paceline.hosts.launchers.interface import WorkerStart, worker_home
from paceline.hosts.launchers.ssh_connection import SshConnection, SshResult, last_line_of
from paceline.hosts.launchers.ssh_install import PYTHON, install_paceline
from paceline.settings import HostSettings

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

    def install(self) -> bool:
        """Install Paceline there, unless it is the same already or the host brings its own. Return whether it did."""
        return self._host.python is None and install_paceline(self._connection)

    def start(self, worker: WorkerStart) -> None:
        self.install()
        self._ask("start", worker)

    def is_alive(self) -> bool | None:
        answer = self._ask("alive", self._nameless(), if_missing=LaunchAnswer())
        return answer.pid is not None

    def stop(self) -> None:
        self._ask("stop", self._nameless(), if_missing=LaunchAnswer())

    def describe(self) -> str:
        return f"ssh {self._host.ssh}"

    def _nameless(self) -> WorkerStart:
        """Return what finds the worker: its home, and no secret."""
        return WorkerStart(name=self._host.name, connect=(), token="", home=worker_home(self._host))

    def _ask(self, action: str, worker: WorkerStart, *, if_missing: LaunchAnswer | None = None) -> LaunchAnswer:
        """Run the host's own side of a launch, in the environment of a login: agent CLIs are on its PATH."""
        path = self._host.python or PYTHON
        # The login shell may be any: it gets the path in a variable, and need not understand quotes.
        script = (
            f"PACELINE_PYTHON={_shell_path(path)}\n"
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
        return self._answer(result)

    def _answer(self, result: SshResult) -> LaunchAnswer:
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


def _shell_path(path: str) -> str:
    """Return a path for the shell of the host. `~` is the home of the user there."""
    return f'"$HOME"{shlex.quote(path[1:])}' if path.startswith("~/") else shlex.quote(path)
