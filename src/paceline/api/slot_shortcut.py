"""The two calls that programs make for each of their own, `POST /v1/slots` and `DELETE /v1/slots/{id}`, at full speed.

They go to the functions of their routes without the framework's way of finding a route and filling its parameters,
which takes longer than all the rest. Never here: what they do, or how it is described (`slots.py`).
"""

import logging
from typing import Final

from paceline.api.auth import App, Receive, Scope, Send
from paceline.api.context import Site
from paceline.api.errors import FAILED, SENTENCES, Refused, hangs_up, problem_of, status_of
from paceline.api.request_body import SMALL_BYTES, check_media_type, decode_body
from paceline.api.routes import slots
from paceline.engine.external_slots.leases import SlotRequest
from paceline.errors import PacelineError

log = logging.getLogger("paceline.api")

PATH: Final = "/v1/slots"


class SlotFront:
    """An ASGI application before another one, which gets everything else."""

    def __init__(self, app: App, site: Site) -> None:
        self._app = app
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        slot_id = _released(scope)
        if slot_id is None and not _is_take(scope):
            await self._app(scope, receive, send)
            return
        try:
            answer = await (self._take(scope, receive) if slot_id is None else slots.release(self._site, slot_id))
        except PacelineError as error:
            status = status_of(error)
            closing = [(b"connection", b"close")] if hangs_up(status, scope["headers"]) else []
            answer = slots.Answer(problem_of(status, str(error)), status, *closing)
        except Exception:
            log.exception("%s %s failed", scope["method"], PATH)
            answer = slots.Answer(problem_of(500, FAILED), 500)
        await answer.send(scope, receive, send)

    async def _take(self, scope: Scope, receive: Receive) -> slots.Answer:
        check_media_type(scope["headers"])
        body = decode_body(await _content(receive), SlotRequest)
        return await slots.take(self._site, body, receive)


def _is_take(scope: Scope) -> bool:
    return (scope["type"], scope.get("method"), scope.get("path")) == ("http", "POST", PATH)


def _released(scope: Scope) -> str | None:
    """The id of the slot that is given back, if that is all that is asked."""
    if scope["type"] != "http" or scope["method"] != "DELETE" or scope["query_string"]:
        return None
    path: str = scope["path"]
    before, _, slot_id = path.rpartition("/")
    return slot_id if before == PATH and slot_id else None


async def _content(receive: Receive) -> bytes:
    content = b""
    while True:
        message = await receive()
        content += bytes(message.get("body", b""))
        if len(content) > SMALL_BYTES:
            raise Refused(413, SENTENCES[413])
        if not message.get("more_body", False):
            return content
