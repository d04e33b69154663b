"""What units on other hosts have printed and changed. It stays there, and is fetched when somebody asks for it."""

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from paceline.agents.account import split_login
from paceline.api.context import ApiContext
from paceline.api.errors import HttpError
from paceline.core.values.channels import Channel
from paceline.engine.engine import Engine
from paceline.engine.work.retention import workspace_host
from paceline.errors import PacelineError, UnknownName
from paceline.hosts.jobs import OutputPiece, PatchPiece, read_output, read_patch
from paceline.hosts.worker.job_runner import output_piece
from paceline.store import Unit
from paceline.workspaces import stored_location

CHANNELS: Final[tuple[Channel, ...]] = ("stdout", "stderr", "screen")
ANSWER_SECONDS: Final = 15.0
"""How long a worker may take: it reads a file, or git compares a work tree with its base."""
MOST_PIECE_BYTES: Final = 1 << 20


def host_of(unit: Unit) -> str:
    """Return the host of the unit's last attempt; '' for the leader's own machine."""
    return split_login(unit.account or "")[1]


async def read_piece(context: ApiContext, unit: Unit, channel: Channel, position: int) -> OutputPiece:
    """Return a piece of what the unit's last attempt printed, from a position."""
    if unit.attempt_id is None:
        raise UnknownName(f"{unit.id} has not been started yet")
    if host_of(unit):
        return await _read_remote(context, unit, channel, position, MOST_PIECE_BYTES)
    return await asyncio.to_thread(output_piece, context.spool, unit.attempt_id, channel, position, MOST_PIECE_BYTES)


async def _read_remote(
    context: ApiContext, unit: Unit, channel: Channel, position: int | None, most: int
) -> OutputPiece:
    """Return a piece of what the unit's last attempt printed on its host; without a position the end of it."""
    host = host_of(unit)
    if not isinstance(context.engine, Engine):
        raise HttpError(503, f"its output is on the host {host}; the engine that leads can fetch it")
    job = context.engine.hosts.of_unit(unit).jobs.start(read_output, unit.attempt_id or "", channel, position, most)
    context.engine.wake()
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await job.wait()
    except TimeoutError:
        raise HttpError(503, f"the host {host} does not answer; the output is there, and can be read later") from None


@contextlib.asynccontextmanager
async def output_folder(context: ApiContext, unit: Unit, most: int) -> AsyncIterator[str | None]:
    """Yield a folder with the output of the unit's last attempt; None if there is none.

    That of another host is a copy of its end, which is deleted afterwards.
    """
    if unit.attempt_id is None:
        yield None
    elif not host_of(unit):
        yield context.spool.folder(unit.attempt_id)
    else:
        with tempfile.TemporaryDirectory(prefix="paceline-output-") as folder:
            for channel in CHANNELS:
                piece = await _read_remote(context, unit, channel, None, most)
                if piece.data:
                    (Path(folder) / channel).write_bytes(piece.data)
            yield folder


log = logging.getLogger("paceline.api")


async def read_remote_patch(context: ApiContext, unit: Unit, most: int) -> PatchPiece | None:
    """Return the change of a unit that works on another host; None if it is known here, or nobody can ask the host."""
    place, host, engine = stored_location(unit.result), workspace_host(unit.result), context.engine
    if place is None or host is None or unit.state == "done" or not isinstance(engine, Engine):
        return None
    if host not in (state.name for state in engine.hosts.remote_states() if state.presence == "joined"):
        return None
    job = engine.hosts.named(host).jobs.start(read_patch, place, most)
    engine.wake()
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await job.wait()
    except (PacelineError, TimeoutError) as error:
        log.info("the change of %s was not read on %s: %s", unit.id, host, error or "it took too long")
        return None
