"""Starting a worker on a node of a Ray cluster, outside of Ray's processes.

Ray only carries the request to the node and knows whether it lives. The script `ray_actor.py` is the part that needs
Ray; it is run with the Python that has it. Never here: an import of Ray.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from paceline.errors import LaunchFailed
from paceline.hosts.launchers import detached_worker, ray_actor
from paceline.hosts.launchers.detached_worker import LaunchAnswer
from paceline.hosts.launchers.interface import WorkerStart, worker_home
from paceline.settings import HostSettings

SCRIPT_SECONDS: Final = 180.0
"""How long the script may take: connecting to Ray takes five seconds, and an actor more than a minute at worst."""
_LONGEST_SHOWN: Final = 600


class RayLauncher:
    """Starts, finds and ends the worker of a host that is a node of Ray."""

    def __init__(self, host: HostSettings, environ: Mapping[str, str]) -> None:
        self._host = host
        self._environ = {name: value for name, value in environ.items() if not name.startswith("PACELINE_")}
        self._nobody = WorkerStart(name=host.name, connect=(), token="", home=worker_home(host))

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

    @property
    def _node(self) -> str:
        return self._host.ray_node or self._host.name

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
        try:
            done = subprocess.run(
                [python, str(Path(ray_actor.__file__))],
                input=json.dumps(request),
                env=self._environ,
                capture_output=True,
                text=True,
                timeout=SCRIPT_SECONDS,
                check=False,
            )
        except OSError as error:
            fix = "set ray_python to a Python with Ray"
            raise LaunchFailed(f"host {self._host.name}: {python} cannot be run: {error.strerror}; {fix}") from error
        except subprocess.TimeoutExpired:
            fix = "look at `ray status`"
            raise LaunchFailed(
                f"host {self._host.name}: Ray did not answer within {SCRIPT_SECONDS:g} s; {fix}"
            ) from None
        for line in done.stdout.splitlines():
            if line.startswith(ray_actor.MARK):
                return dict(json.loads(line.removeprefix(ray_actor.MARK)))
        said = " / ".join(done.stderr.strip().splitlines()[-3:])[-_LONGEST_SHOWN:] or "it printed nothing"
        raise LaunchFailed(f"host {self._host.name}: {python} ended with exit code {done.returncode}: {said}")
