"""The body of a request on its way: read no faster than it can go on, and kept as long as it may be sent again."""

import asyncio
from typing import Protocol

from paceline.gateway.upstream_pool import UpstreamConnection

KEPT_BYTES = 4 * 2**20
"""So much of a body is kept to be sent again, and looked through for its model. A longer one is passed on once."""
WAITING_BYTES = 65_536
"""A body that waits for a slot is read no further than this, or than its model was looked for."""


class Flow(Protocol):
    """The reading side of the client's connection."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Upload:
    """What the client sends, as far as it came."""

    def __init__(self, flow: Flow) -> None:
        self.pieces: list[bytes] = []
        self.size = 0
        self.is_complete = False
        self.is_kept = True
        """Whether `pieces` is all that came."""
        self.most_waiting = KEPT_BYTES
        self._flow = flow
        self._to: UpstreamConnection | None = None
        self._news: asyncio.Future[None] | None = None

    def receive(self, data: bytes) -> None:
        self.size += len(data)
        if self.is_kept:
            self.pieces.append(data)
        if self._to is not None:
            self._to.send_body(data)
            self._forget_if_long()
        elif self.size >= self.most_waiting:
            self._flow.pause_reading()
        self._tell()

    def end(self) -> None:
        self.is_complete = True
        if self._to is not None:
            self._to.end_body()
        self._tell()

    def attach(self, connection: UpstreamConnection) -> None:
        """All that came has gone to this connection; what comes goes there too."""
        self._to = connection
        self._forget_if_long()
        if self.is_complete:
            connection.end_body()

    def detach(self) -> None:
        """What comes from now on waits again."""
        self._to = None

    def pause(self, is_paused: bool) -> None:
        """The upstream takes no more for now, or takes more again."""
        if is_paused:
            self._flow.pause_reading()
        else:
            self._flow.resume_reading()

    async def more(self) -> None:
        """Return once there is more of the body, or no more to come."""
        self._news = asyncio.get_running_loop().create_future()
        try:
            await self._news
        finally:
            self._news = None

    def _forget_if_long(self) -> None:
        if self.size > KEPT_BYTES and self.is_kept:
            self.is_kept = False
            self.pieces = []

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)
