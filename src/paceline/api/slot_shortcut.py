"""A shortcut past the framework for `POST /v1/slots` and `DELETE /v1/slots/{id}`, which programs call most.

The framework's routing and parameter handling take longer than everything else in these calls. Never here: what the
routes do, or their description (`routes/slots.py`).
"""

import logging
from typing import Final

from paceline.api.auth import App, Receive, Scope, Send
from paceline.api.context import ApiContext
from paceline.api.errors import DETAILS, INTERNAL_ERROR, HttpError, closes_connection, http_error_body, status_of
from paceline.api.request_body import SMALL_BYTES, check_media_type, decode_body
from paceline.api.routes import slots
from paceline.engine.external_slots.leases import SlotRequest
from paceline.errors import PacelineError

log = logging.getLogger("paceline.api")

PATH: Final = "/v1/slots"


class SlotShortcut:
    """ASGI middleware that answers the two calls itself and passes everything else on."""

    def __init__(self, app: App, context: ApiContext) -> None:
        self._app = app
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        slot_id = _slot_to_release(scope)
        if slot_id is None and not _is_acquire(scope):
            await self._app(scope, receive, send)
            return
        try:
            if slot_id is None:
                response = await self._acquire(scope, receive)
            else:
                response = await slots.release(self._context, slot_id)
        except PacelineError as error:
            status = status_of(error)
            closing = [(b"connection", b"close")] if closes_connection(status, scope["headers"]) else []
            response = slots.JsonResponse(http_error_body(status, str(error)), status, *closing)
        except Exception:
            log.exception("%s %s failed", scope["method"], PATH)
            response = slots.JsonResponse(http_error_body(500, INTERNAL_ERROR), 500)
        await response.send(scope, receive, send)

    async def _acquire(self, scope: Scope, receive: Receive) -> slots.JsonResponse:
        check_media_type(scope["headers"])
        body = decode_body(await _read_content(receive), SlotRequest)
        return await slots.acquire(self._context, body, receive)


def _is_acquire(scope: Scope) -> bool:
    return (scope["type"], scope.get("method"), scope.get("path")) == ("http", "POST", PATH)


def _slot_to_release(scope: Scope) -> str | None:
    """Return the id of the slot if the request releases one and has no further parameters."""
    if scope["type"] != "http" or scope["method"] != "DELETE" or scope["query_string"]:
        return None
    path: str = scope["path"]
    before, _, slot_id = path.rpartition("/")
    return slot_id if before == PATH and slot_id else None


async def _read_content(receive: Receive) -> bytes:
    content = b""
    while True:
        message = await receive()
        content += bytes(message.get("body", b""))
        if len(content) > SMALL_BYTES:
            raise HttpError(413, DETAILS[413])
        if not message.get("more_body", False):
            return content
