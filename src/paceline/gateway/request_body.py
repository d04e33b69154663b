"""The body of a request: read no faster than it is sent upstream, and kept while it may have to be sent again."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, Self, TypeVar

import msgspec

from paceline.gateway.upstream_pool import UpstreamConnection

KEPT_BYTES = 4 * 2**20
"""Bytes of a body that are kept for a retry and searched for the model. A longer body can be sent only once. It
bounds the memory of one request; a long conversation without images is smaller."""
WAITING_BYTES = 65_536
"""Bytes read of a body that waits for a slot, unless more were needed to find its model. Thousands can wait."""

LARGE_BYTES = 256 * 1024
"""Bytes of a body that are parsed on the loop: a few milliseconds, however deep the JSON is."""
_PARSER = ThreadPoolExecutor(1, thread_name_prefix="paceline-bodies")
"""One thread: parsing holds the interpreter, so more of them would only keep the loop from its turn."""
Value = TypeVar("Value")


async def parsed(size: int, parse: Callable[[], Value]) -> Value:
    """Return what `parse` makes of a body of so many bytes. A large one is parsed off the loop."""
    if size <= LARGE_BYTES:
        return parse()
    return await asyncio.get_running_loop().run_in_executor(_PARSER, parse)


Members = dict[str, msgspec.Raw]
"""The members of a body, whose values keep their bytes."""
_OBJECT = msgspec.json.Decoder(Members)


class ReadFlow(Protocol):
    """The reading side of the client's connection."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class RequestBody:
    """The part of the body that has arrived so far."""

    def __init__(self, flow: ReadFlow) -> None:
        self.pieces: list[bytes] = []
        self.size = 0
        self.is_complete = False
        self.is_kept = True
        """Whether `pieces` holds everything that has arrived."""
        self.most_waiting = KEPT_BYTES
        self._flow = flow
        self._connection: UpstreamConnection | None = None
        self._arrival: asyncio.Future[None] | None = None
        self._members: Members | None = None

    @classmethod
    def whole(cls, data: bytes, flow: ReadFlow) -> Self:
        body = cls(flow)
        body.receive(data)
        body.end()
        return body

    def receive(self, data: bytes) -> None:
        self.size += len(data)
        if self.is_kept:
            self.pieces.append(data)
        if self._connection is not None:
            self._connection.send_body(data)
            self._drop_if_long()
        elif self.size >= self.most_waiting:
            self._flow.pause_reading()
        self._wake()

    def end(self) -> None:
        self.is_complete = True
        if self._connection is not None:
            self._connection.end_body()
        self._wake()

    def attach(self, connection: UpstreamConnection) -> None:
        """Forward later pieces to this connection, which has been sent everything up to now."""
        self._connection = connection
        self._drop_if_long()
        if self.is_complete:
            connection.end_body()

    def detach(self) -> None:
        """Stop forwarding. Later pieces wait for the next connection."""
        self._connection = None

    def pause(self, is_paused: bool) -> None:
        """Stop or resume reading from the client, because the upstream takes no more or takes more again."""
        if is_paused:
            self._flow.pause_reading()
        else:
            self._flow.resume_reading()

    async def more(self) -> None:
        """Wait until more of the body has arrived, or its end."""
        self._arrival = asyncio.get_running_loop().create_future()
        try:
            await self._arrival
        finally:
            self._arrival = None

    async def members(self) -> Members:
        """Return the members of a complete body. It is decoded once. Raises `ValueError` if it is no JSON object."""
        if self._members is None:
            whole = b"".join(self.pieces)
            self._members = await parsed(len(whole), lambda: members_of(whole))
        return self._members

    def _drop_if_long(self) -> None:
        if self.size > KEPT_BYTES and self.is_kept:
            self.is_kept = False
            self.pieces = []

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)


def members_of(body: bytes) -> Members:
    """Return the members of a body. Raises `ValueError` if it is no JSON object in UTF-8."""
    try:
        body.decode()  # the decoder does not look into strings that it skips
        return _OBJECT.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
