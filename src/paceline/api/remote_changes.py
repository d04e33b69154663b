"""The change in a workspace on another host, as it is there now. What is committed has come to the leader's machine."""

import asyncio
import logging
from typing import Final

from paceline.api.context import ApiContext
from paceline.engine.engine import Engine
from paceline.engine.workspace_retention import workspace_host
from paceline.errors import PacelineError
from paceline.hosts.host_jobs import PatchPiece, read_patch
from paceline.store import Unit
from paceline.workspaces import stored_place

log = logging.getLogger("paceline.api")

ANSWER_SECONDS: Final = 15.0
"""How long a host may take: git compares a work tree with its base."""


async def read_remote_patch(context: ApiContext, unit: Unit, most: int) -> PatchPiece | None:
    """Return the change of a unit that works on another host; None if it is known here, or nobody can ask the host."""
    place, host, engine = stored_place(unit.result), workspace_host(unit.result), context.engine
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
