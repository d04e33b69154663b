"""The writes of external slots: all that change in one turn of the event loop are stored in one transaction."""

import asyncio
import logging

from paceline.engine.external_slots.slot_table import SlotTable
from paceline.errors import CapacityError, StoreError

log = logging.getLogger("paceline.engine")


class GroupCommit:
    """Callers wait in `stored` until their change is on disk. Until `close`."""

    def __init__(self, table: SlotTable) -> None:
        self._table = table
        self._waiting: list[asyncio.Future[None]] = []
        self._is_scheduled = False
        self.is_closed = False

    async def stored(self) -> None:
        """Wait until everything that has changed is stored. Raises what kept it from being stored."""
        self.check_open()
        if not self._table.is_saved:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            self.save_soon()
            await waiting

    def save_soon(self) -> None:
        """Store changes at the end of this turn of the loop, once for all callers."""
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._save)

    def close(self) -> None:
        """Fail the callers that wait. What is granted stays in the store, for the next leader."""
        self.is_closed = True
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(closed_error())

    def check_open(self) -> None:
        if self.is_closed:
            raise closed_error()

    def _save(self) -> None:
        self._is_scheduled = False
        waiting, self._waiting = self._waiting, []
        failure: Exception | None = None
        try:
            if not self.is_closed:
                self._table.save()
        except Exception as error:
            failure = error  # its callers get it; the next save includes what is unsaved
            log.warning("slots could not be stored: %s", error, exc_info=not isinstance(error, StoreError))
        for each in waiting:
            if each.done():
                continue
            if failure is None:
                each.set_result(None)
            else:
                each.set_exception(failure)


def closed_error() -> CapacityError:
    """Return the error of a call that an engine which stops cannot answer."""
    return CapacityError("the engine is stopping; ask again when it is back")
