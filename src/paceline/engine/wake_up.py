"""The rest of the engine between two passes, and what ends it early."""

import asyncio
from collections.abc import Callable, Coroutine


class WakeUp:
    """A request for the next pass: it ends the rest that is under way, or keeps the next one from beginning."""

    def __init__(self) -> None:
        self._is_set = False
        self._resting: asyncio.Task[object] | None = None

    def set(self) -> None:
        """Ask for a pass now."""
        self._is_set = True
        if self._resting is not None:
            self._resting.cancel()

    def clear(self) -> None:
        """Forget the request: a pass handles it."""
        self._is_set = False

    async def rest(self, wait: Callable[[], Coroutine[object, object, object]]) -> None:
        """Wait until `wait` is over or a pass is asked for. An error of `wait` ends the rest: the pass shows it."""
        if self._is_set:
            await asyncio.sleep(0)
            return
        resting = self._resting = asyncio.ensure_future(wait())
        try:
            await asyncio.wait({resting})
        finally:
            self._resting = None
            if not resting.done():
                resting.cancel()
                await asyncio.gather(resting, return_exceptions=True)
        if not resting.cancelled():
            resting.exception()  # taken, so that it is not reported as lost
