"""One try at the upstream: the request sent once, its answer passed on, or held back because it may be tried again.

Here: what is seen of an answer while it passes. Never here: slots, waiting, or the decision to try again.
"""

import asyncio
from collections.abc import Callable

from paceline.gateway.client_response import Answer
from paceline.gateway.decompression import Unpacker, unpacker_for, without_coding
from paceline.gateway.http_heads import Header
from paceline.gateway.request_access import Call
from paceline.gateway.request_body import Upload
from paceline.gateway.upstream_pool import AnswerHead, UpstreamBroke, UpstreamConnection
from paceline.protocols import AnswerReader, answer_reader
from paceline.protocols.responses import LONGEST_ERROR

HELD_BACK_STATUSES = frozenset({429, 503, 529})
"""An answer with one of these is looked at whole before the client sees any of it."""


class Attempt:
    """Receives one answer. `over` is done when it has ended, with `UpstreamBroke` as its value where it broke."""

    def __init__(
        self,
        call: Call,
        upload: Upload,
        answer: Answer,
        own_headers: bytes,
        on_head: Callable[[AnswerHead], object],
    ) -> None:
        self.over: asyncio.Future[UpstreamBroke | None] = asyncio.get_running_loop().create_future()
        self.head: AnswerHead | None = None
        self.reader: AnswerReader | None = None
        self.is_held_back = False
        self.sent_at = self.began_at = 0.0
        """On the loop's clock."""
        self._call = call
        self._upload = upload
        self._answer = answer
        self._own_headers = own_headers
        self._on_head = on_head
        self._connection: UpstreamConnection | None = None
        """While it is ours."""
        self._unpacker: Unpacker | None = None
        self._error: list[bytes] = []
        self._error_bytes = 0

    @property
    def error_text(self) -> bytes:
        """The beginning of an answer that is an error, unpacked."""
        body = b"".join(self._error)
        unpacker = None if self.head is None else unpacker_for(self.head.lowered)
        return body if unpacker is None else unpacker.feed(body)

    def send(self, connection: UpstreamConnection) -> None:
        """Send all that there is of the request; the rest follows as it comes."""
        call, upload = self._call, self._upload
        self._connection = connection
        upload.pause(False)  # before anything is sent: an upstream that takes no more pauses it again
        is_head = call.method == "HEAD"
        connection.send(self, call.head, upload.pieces, is_head=is_head, is_chunked=call.is_chunked)
        self.sent_at = connection.moved_at
        upload.attach(connection)

    def give_up(self) -> None:
        """Nobody wants the answer any more."""
        self._upload.detach()
        if self._connection is not None:
            self._connection.abort()

    def check_time(self, now: float, *, first_byte_seconds: float, idle_seconds: float) -> None:
        """Break off what has not moved for too long."""
        limit = first_byte_seconds if self.head is None else idle_seconds
        if self._connection is not None and now - self._connection.moved_at > limit:
            what = "no answer" if self.head is None else "nothing more of the answer"
            self._connection.break_off(f"{what} within {limit:g} s", is_timeout=True)

    def pause(self, is_paused: bool) -> None:
        """The client takes no more for now, or takes more again."""
        if self._connection is not None:
            self._connection.pause_answer(is_paused)

    def pass_on(self, own_headers: bytes) -> None:
        """Let the client have what was held back."""
        assert self.head is not None
        self.is_held_back = False
        self._answer.begin(self.head, own_headers)
        self._answer.write(b"".join(self._error))

    # -- what the connection tells -----------------------------------------------------------------

    def answer_began(self, head: AnswerHead) -> None:
        self.head = head
        self.began_at = asyncio.get_running_loop().time()
        self._on_head(head)
        if head.status < 400:
            self._unpacker = unpacker_for(head.lowered)
            self.reader = answer_reader(head.lowered if self._unpacker is None else without_coding(head.lowered))
        if head.status in HELD_BACK_STATUSES and self._upload.is_kept:
            self.is_held_back = True
        else:
            self._answer.begin(head, self._own_headers)

    def answer_body(self, data: bytes) -> None:
        if self.reader is not None:
            self.reader.feed(data if self._unpacker is None else self._unpacker.feed(data))
        elif self.head is not None and self.head.status >= 400 and self._error_bytes < LONGEST_ERROR:
            self._error.append(data)
            self._error_bytes += len(data)
            if self.is_held_back:
                if self._error_bytes >= LONGEST_ERROR:
                    self.pass_on(self._own_headers)  # too long to be kept
                return
        self._answer.write(data)

    def answer_flushed(self) -> None:
        self._answer.flush()

    def answer_ended(self, trailers: list[Header]) -> None:
        if not self.is_held_back:
            self._answer.end(trailers)
        self._end(None)

    def answer_broke(self, error: UpstreamBroke) -> None:
        self._end(error)

    def upload_paused(self, is_paused: bool) -> None:
        self._upload.pause(is_paused)

    def _end(self, outcome: UpstreamBroke | None) -> None:
        self._upload.detach()
        self._connection = None  # it is no longer ours
        if not self.over.done():
            self.over.set_result(outcome)
