"""The process of `paceline worker`: its locks, its log, its signals and its loop."""

import asyncio
import logging
import signal
import sys
from collections.abc import Mapping

import uvloop

from paceline.daemon.engines import session_variables
from paceline.daemon.process import LOG_FILE, LineFormatter, LogFile, handled_by, on_stop_signals
from paceline.daemon.times import local_zone
from paceline.executors.process import raise_file_limit
from paceline.executors.spool import make_private
from paceline.hosts.worker.worker import WorkerRequest, open_worker, sole_user

MOST_SESSIONS = 1000
"""Sessions for which files are kept free: more than a host runs, and a limit that all systems allow."""

log = logging.getLogger("paceline.worker")


def run_worker(request: WorkerRequest, environ: Mapping[str, str]) -> None:
    """Serve leaders until a stop signal. Raise `Refused` if one refuses this worker, `EngineBusy` for a used home."""
    make_private(str(request.home))
    # Also to the terminal, or to whoever has started the worker.
    terminal = logging.StreamHandler(sys.stderr)
    terminal.setFormatter(LineFormatter("%(asctime)s %(message)s", "%H:%M:%S"))
    with sole_user(request.home), handled_by(terminal, LogFile(request.home / LOG_FILE)):
        warning = raise_file_limit(MOST_SESSIONS)
        if warning is not None:
            log.warning("%s", warning)
        uvloop.run(serve_worker(request, session_variables(environ)))


async def serve_worker(request: WorkerRequest, environ: Mapping[str, str]) -> None:
    """Serve leaders on the running loop."""
    async with open_worker(request, environ, local_zone().key) as worker:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, worker.drain)
        with on_stop_signals(lambda _: worker.leave()):
            await worker.run()
        log.warning("the worker ends; its sessions continue, and the next worker of this home finds them")
