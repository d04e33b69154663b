"""Whether a leader answers: waits between requests that fail, and one line in the log when it is gone or back."""

import logging

from paceline.clock import Clock
from paceline.errors import LinkDown

log = logging.getLogger("paceline.worker")

FIRST_WAIT_SECONDS = 0.2
"""A leader that restarts is often back within a second."""
LONGEST_WAIT_SECONDS = 5.0
"""How much later than the leader a worker may be back. Fifty workers then make ten requests a second."""


class LinkWatch:
    """The state of the link over all requests of a worker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._down_since: float | None = None
        self._wait = FIRST_WAIT_SECONDS

    def answered(self) -> None:
        """Note that a leader has answered."""
        if self._down_since is not None:
            log.warning("the leader answers again, after %.0f s", self._clock.now() - self._down_since)
        self._down_since = None
        self._wait = FIRST_WAIT_SECONDS

    async def failed(self, error: LinkDown) -> None:
        """Note that nobody answered, and wait before the next request."""
        if self._down_since is None:
            self._down_since = self._clock.now()
            log.warning("no leader answers (%s); sessions continue, and it is asked again", error)
        wait, self._wait = self._wait, min(self._wait * 2, LONGEST_WAIT_SECONDS)
        await self._clock.sleep(wait)
