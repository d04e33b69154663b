"""The dashboard of the demo: the server of `paceline up` on a free port, while the demo runs."""

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from paceline.api.app import create_app
from paceline.api.context import ApiContext
from paceline.api.server import serve
from paceline.api.tokens import load_tokens
from paceline.cli.daemon_address import dashboard_url
from paceline.cli.inputs import local_zone
from paceline.engine.engine import Engine
from paceline.executors.spool import Spool
from paceline.settings import Settings

HOST = "127.0.0.1"


@asynccontextmanager
async def dashboard(engine: Engine, settings: Settings, spool: Spool) -> AsyncIterator[str]:
    """Serve the dashboard, and yield the address that opens it."""
    engine.start()
    tokens = load_tokens(settings.home)
    context = ApiContext(
        engine,
        settings=settings,
        spool=spool,
        zone=local_zone(),
        environ=os.environ,
        folder=settings.home,
        since=time.time(),
    )
    try:
        async with serve(create_app(context, tokens=tokens, host=HOST), HOST) as served:
            try:
                yield dashboard_url(served.url, tokens.full)
            finally:
                context.close()
    finally:
        engine.close()
