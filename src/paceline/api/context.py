"""What every route works on: the engine of this process, its settings and its spool, and what follows its events."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from zoneinfo import ZoneInfo

from litestar.di import NamedDependency

from paceline.api.background import Watch
from paceline.core import Governor
from paceline.engine.engine import Engine
from paceline.errors import StoreError
from paceline.executors.spool import Spool
from paceline.settings import Settings
from paceline.store import Store
from paceline.views.throughput import Pace

log = logging.getLogger("paceline.api")


class Site:
    """`folder` is where relative paths of plans begin, `since` when the engine was started."""

    def __init__(
        self,
        engine: Engine,
        *,
        settings: Settings,
        spool: Spool,
        zone: ZoneInfo,
        environ: Mapping[str, str],
        folder: Path,
        since: float,
    ) -> None:
        self.engine = engine
        self.settings = settings
        self.spool = spool
        self.zone = zone
        self.environ = environ
        self.folder = folder
        self.since = since
        self.pace = Pace(engine.store)
        self.watch = Watch(engine, environ)
        self.adding = asyncio.Lock()
        """One plan after the other: two that add to one campaign at a time would be in each other's way."""

    def close(self) -> None:
        """Answers without an end come to one, and who waits for a slot is told to come again."""
        self.watch.close()
        self.engine.leases.close()

    def obey(self) -> None:
        """Carry out the orders that are in the store. Those stand: where it fails now, the next pass does it."""
        try:
            self.engine.obey()
        except StoreError as error:
            log.warning("an order is carried out with the next pass: %s", error)

    @property
    def store(self) -> Store:
        return self.engine.store

    @property
    def governor(self) -> Governor:
        """For looking: what is to be changed goes through an order."""
        return self.engine.governor

    @property
    def now(self) -> float:
        return self.engine.clock.now()


OnSite = NamedDependency[Site]
"""How a route asks for it: by a parameter `site: OnSite`."""
