"""Launch sites on machines in namespaces, where a process has another number than on the real machine."""

from collections.abc import Callable
from pathlib import Path

import msgspec
from tests.cluster.machines import Machine

from paceline.hosts.launchers.interface import WorkerLauncher, WorkerStart
from paceline.testing.launcher_contract import LaunchSite, StandIn

NEVER = 1 << 30
"""The number of no process."""


class RemoteSite(LaunchSite):
    """A site whose workers run on some of these machines. Their processes get the numbers of the real machine."""

    def __init__(
        self,
        machines: list[Machine],
        *,
        launcher: Callable[[], WorkerLauncher],
        worker: WorkerStart,
        troubles: tuple[tuple[WorkerLauncher, tuple[str, ...]], ...] = (),
    ) -> None:
        super().__init__(launcher=launcher, worker=worker, troubles=troubles)
        self._machines = machines
        self._known: dict[int, int] = {}

    def stand_ins(self) -> list[StandIn]:
        return [
            msgspec.structs.replace(each, pid=self._real(each.pid), session=self._real(each.session))
            for each in super().stand_ins()
        ]

    def _real(self, pid: int) -> int:
        for machine in self._machines if pid not in self._known else ():
            found = machine.real_pid(pid) if machine.is_up else None
            if found is not None and self.worker.home in Path(f"/proc/{found}/environ").read_text():
                self._known[pid] = found
        return self._known.get(pid, NEVER)
