"""The engine of a home for as long as programs need one: it serves slots, starts no work, and ends by itself.

    python -m paceline.daemon.slot_engine [IDLE_SECONDS]

`paceline exec` starts it where no engine leads, as a process of its own. It counts the sessions that an engine before
has left, and records how they end; no unit, check or delivery is started. An engine that runs campaigns takes its
place at once. Never here: what a slot is.
"""

import asyncio
import contextlib
import logging
import os
import sys
import time
from typing import TYPE_CHECKING, Final

from paceline.daemon.home import Home, open_home
from paceline.daemon.process import on_stop_signals
from paceline.errors import EngineBusy, LaunchFailed, LeadLost, PacelineError, StoreError
from paceline.leadership.election import WANTED_STATE
from paceline.settings.environment import OTHERS

if TYPE_CHECKING:
    from paceline.engine.engine import Engine

log = logging.getLogger("paceline.daemon")

IDLE_SECONDS: Final = 60.0
"""How long it stays when nothing needs it: programs often follow each other, and each start costs half a second."""
CHECK_SECONDS: Final = 0.2
"""How often it checks whether it is needed, and whether an engine that runs campaigns wants the lead."""
RETRY_SECONDS: Final = 0.5
"""The rest between two starts, if the first engine was killed at once."""


class SlotEngineStarter:
    """Sees to it that an engine leads the home of a program that waits."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._started: tuple[int, int] | None = None
        """The process that was started and not seen to end, and the pipe with its errors."""
        self._started_at = 0.0
        self._standstill: str | None = None

    def ensure(self) -> None:
        """Start an engine unless one leads or is being started. Raise `LaunchFailed` if it could not begin.

        An engine that stands still keeps the lead: that is logged once, and the program waits.
        """
        before, self._standstill = self._standstill, self._home.standstill
        if self._standstill is not None and before is None:
            log.warning("nobody gets a slot: %s", self._standstill)
        if self._started is not None and not self._has_ended(*self._started):
            return
        if self._home.leader() is None and time.monotonic() - self._started_at >= RETRY_SECONDS:
            self._started_at = time.monotonic()
            self._started = _start(self._home)

    def _has_ended(self, pid: int, errors: int) -> bool:
        """Return whether the engine has ended: by itself, by a signal, or because another one leads."""
        ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            return False
        self._started = None
        with open(errors, "rb") as pipe:
            said = pipe.read().decode(errors="replace").strip()
        if os.waitstatus_to_exitcode(status) > 0 and os.waitstatus_to_exitcode(status) != os.EX_TEMPFAIL:
            raise LaunchFailed(f"the engine that serves slots could not be started: {said or 'no reason'}")
        return True


def _start(home: Home) -> tuple[int, int]:
    """Start the engine in a session of its own, without what marks a process as part of an agent's session."""
    read, write = os.pipe()
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", "paceline.daemon.slot_engine"],
            {name: value for name, value in home.environ.items() if name not in OTHERS},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, write, 2),
            ],
            setsid=True,
        )
    finally:
        os.close(write)
    return pid, read


def main(idle_seconds: float = IDLE_SECONDS) -> int:
    """Serve slots until nothing has needed that for so long. Return the exit code."""
    from paceline.daemon.engines import leading_engine  # imported here because it is slow, and `exec` needs none of it
    from paceline.daemon.process import log_to_file

    try:
        with open_home() as home, leading_engine(home, only_slots=True) as engine, log_to_file(home):
            os.chdir(home.path)  # the folder of the program that started it may go
            asyncio.run(_serve(home, engine, idle_seconds))
    except (EngineBusy, LeadLost):
        return os.EX_TEMPFAIL  # another engine serves the slots
    except PacelineError as error:
        sys.stderr.write(f"{error}\n")
        return os.EX_SOFTWARE
    return os.EX_OK


async def _serve(home: Home, engine: "Engine", idle_seconds: float) -> None:
    """Run the engine until it is not needed any more, or one that runs campaigns wants the lead."""
    wish = home.store.load_state(WANTED_STATE)
    needed_at = time.monotonic()
    running = asyncio.ensure_future(engine.run())
    with on_stop_signals(lambda _: engine.stop()):
        while not running.done():
            await asyncio.wait({running}, timeout=CHECK_SECONDS)
            with contextlib.suppress(StoreError):
                if home.store.load_state(WANTED_STATE) != wish:
                    engine.stop()
            if engine.is_needed:
                needed_at = time.monotonic()
            elif time.monotonic() - needed_at > idle_seconds:
                engine.stop()
        await running


if __name__ == "__main__":
    sys.exit(main(*map(float, sys.argv[1:])))
