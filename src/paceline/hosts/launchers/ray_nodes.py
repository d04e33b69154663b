"""Starting a worker on a node of a Ray cluster, outside of Ray's processes.

Ray only carries the request to the node and knows whether it lives. The script `ray_actor.py` is the part that needs
Ray; it is run with the Python that has it. Never here: an import of Ray.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from paceline.errors import LaunchFailed
from paceline.hosts.launchers import detached_worker, ray_actor
from paceline.hosts.launchers.detached_worker import LaunchAnswer
from paceline.hosts.launchers.interface import WorkerStart, last_words, run_program, worker_home
from paceline.settings import HostSettings

SCRIPT_SECONDS: Final = 180.0
"""How long the script may take: connecting to Ray takes five seconds, and an actor more than a minute at worst."""
_LONGEST_SHOWN: Final = 600


class RayLauncher:
    """Starts, finds and ends the worker of a host that is a node of Ray."""

    def __init__(self, host: HostSettings, environ: Mapping[str, str]) -> None:
        self._host = host
        self._environ = {name: value for name, value in environ.items() if not name.startswith("PACELINE_")}
        self._node = host.ray_node or host.name
        self._nobody = WorkerStart(name=host.name, home=worker_home(host))

    def start(self, worker: WorkerStart) -> None:
        if self._ask("start", worker) is None:
            fix = "start Ray there again, or set ray_node to another node"
            raise LaunchFailed(f"host {self._host.name}: the node {self._node} of Ray is lost; {fix}")

    def is_alive(self) -> bool:
        answer = self._ask("alive", self._nobody)
        return answer is not None and answer.pid is not None

    def stop(self) -> None:
        self._ask("stop", self._nobody)

    def describe(self) -> str:
        return f"ray {self._host.ray} {self._node}"[:90]

    def _ask(self, action: str, worker: WorkerStart) -> LaunchAnswer | None:
        """Return the answer of the node; None if Ray has lost it."""
        answer = self._run_script(
            {
                "action": action,
                "address": self._host.ray,
                "host": self._host.name,
                "node": self._node,
                "python": self._host.python,
                "leader_python": sys.executable,
                "module": detached_worker.__name__,
                "mark": detached_worker.MARK,
                "order": msgspec.json.encode(worker).decode(),
            }
        )
        if answer.pop("is_node_lost", False):
            return None
        launched = msgspec.convert(answer, LaunchAnswer)
        if launched.error is not None:
            raise LaunchFailed(f"host {self._host.name}: {launched.error}")
        return launched

    def _run_script(self, request: Mapping[str, object]) -> dict[str, Any]:
        python = os.path.expanduser(self._host.ray_python or sys.executable)
        argv, content = [python, str(Path(ray_actor.__file__))], json.dumps(request).encode()
        silent = f"host {self._host.name}: Ray did not answer within {SCRIPT_SECONDS:g} s; look at `ray status`"
        try:
            done = run_program(argv, seconds=SCRIPT_SECONDS, silent=silent, environ=self._environ, content=content)
        except OSError as error:
            fix = "set ray_python to a Python with Ray"
            raise LaunchFailed(f"host {self._host.name}: {python} cannot be run: {error.strerror}; {fix}") from error
        for line in done.output.splitlines():
            if line.startswith(ray_actor.MARK):
                return dict(json.loads(line.removeprefix(ray_actor.MARK)))
        said = last_words(done.errors, lines=3, most=_LONGEST_SHOWN)
        raise LaunchFailed(f"host {self._host.name}: {python} ended with exit code {done.code}: {said}")
