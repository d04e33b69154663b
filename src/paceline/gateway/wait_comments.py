"""Signs of life for a client whose stream waits for a slot: comments, which every reader of events skips.

Here: when a comment is written. Never here: the response itself.
"""

import asyncio
from collections.abc import Callable

from paceline.gateway.client_response import ClientResponse
from paceline.gateway.request_log import CallRecord
from paceline.protocols import Family


class WaitComments:
    """The comments of one request. The first one comes after `seconds` of waiting, with the head of the response."""

    __slots__ = ("_family", "_own_headers", "_record", "_response", "_seconds", "_timer")

    def __init__(
        self,
        response: ClientResponse,
        record: CallRecord,
        seconds: float,
        family: Family,
        own_headers: Callable[[], bytes],
    ) -> None:
        self._response = response
        self._record = record
        self._seconds = seconds
        self._family = family
        self._own_headers = own_headers
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to write comments: the request waits now. No-op if it waited before, for another account."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._write)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _write(self) -> None:
        if not self._response.is_early:
            error_event = b"event: error\n" if self._family == "anthropic" else b""
            self._response.begin_early(self._own_headers(), error_event)
        self._response.comment(b"paceline: waiting (%b)" % (self._record.reason or "queue").encode())
        self.stop()
        self.start()
