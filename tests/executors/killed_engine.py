"""An engine that is killed: starts sessions in a spool, and dies by SIGKILL at the given point.

python killed_engine.py SPOOL WORK POINT ATTEMPT...
"""

import os
import signal
import sys
from collections.abc import Callable

from paceline.executors import process
from paceline.executors.interface import Launch

POINTS = ("locked", "spawned", "started", "running", "ended", "settled")
"""Where it can die: after the lock was taken, after the supervisor was started, ..."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying(spawn: Callable[..., int], point: str) -> Callable[..., int]:
    def spawn_and_die(*arguments: object) -> int:
        if point == "locked":
            die()
        pid = spawn(*arguments)
        die()
        return pid

    return spawn_and_die


def main(spool: str, work: str, point: str, attempts: list[str]) -> None:
    if point in ("locked", "spawned"):
        process._spawn = dying(process._spawn, point)
    executor = process.ProcessExecutor(spool)
    handles = []
    for attempt in attempts:
        # Each run leaves a line; a session ends when its gate is opened.
        script = f"echo {attempt} >> runs; echo begun; read line < gate-{attempt}; echo $line; exit 7"
        env = {"PATH": os.environ["PATH"]}
        handles.append(executor.start(Launch(attempt_id=attempt, argv=("sh", "-c", script), env=env, cwd=work)))
    if point == "started":
        die()
    for handle in handles:
        while b"begun\n" not in handle.read_new("stdout"):
            pass
    print("running", flush=True)
    if point == "running":
        die()
    for handle in handles:
        while not handle.state().is_over:
            executor.take_ended()
    if point == "ended":
        die()
    for handle in handles:
        executor.archive(handle)
    die()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
