"""The process of `paceline worker`: its options, its locks, its log, its signals and its loop."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import uvloop

from paceline.agents.launch import TOKEN_VARIABLE
from paceline.daemon.engines import session_variables
from paceline.daemon.process import LOG_FILE, LineFormatter, LogFile, handled_by, on_stop_signals
from paceline.daemon.times import local_zone
from paceline.errors import InvalidInput
from paceline.executors.process import raise_file_limit
from paceline.executors.spool import make_private
from paceline.hosts.worker.link import check_address, host_of_token, read_token
from paceline.hosts.worker.worker import WorkerRequest, open_worker, sole_user
from paceline.settings.environment import home_folder

MOST_SESSIONS = 1000
"""Sessions for which files are kept free: more than a host runs, and a limit that all systems allow."""

log = logging.getLogger("paceline.worker")


def worker_request(
    urls: Sequence[str], name: str | None, token_file: Path | None, labels: Sequence[str], *, insecure: bool
) -> WorkerRequest:
    """Return the checked options of `paceline worker`."""
    addresses = [check_address(url, insecure=insecure) for url in urls]
    token = read_token(*_token_text(token_file))
    host = host_of_token(token)
    if name not in (None, host):
        raise InvalidInput(f"--name is {name!r}, but the token is one of {host!r}: use the token of {name!r}")
    home = home_folder(Path.cwd(), os.environ)
    return WorkerRequest(home=home, addresses=addresses, token=token, labels=tuple(dict.fromkeys(labels)))


def _token_text(file: Path | None) -> tuple[str, str]:
    """Return the token and where it comes from."""
    if file is None:
        if TOKEN_VARIABLE not in os.environ:
            raise InvalidInput(f"the token of this host is missing: pass --token-file FILE, or set {TOKEN_VARIABLE}")
        return os.environ[TOKEN_VARIABLE], TOKEN_VARIABLE
    try:
        return file.read_text(), str(file)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the token cannot be read from {file}: {error}") from error


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
