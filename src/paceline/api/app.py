"""The application: every route over one engine, with its errors and its OpenAPI document, behind authentication.

A module of routes has a list `ROUTES` of handlers. A handler receives the engine by a parameter `context: Context`. A
handler with a request body names the body's type in `opt={"body": Type}` and reads it with `request_body.read_body`.
"""

from collections.abc import MutableMapping
from functools import cache
from typing import Any, Final, cast

from litestar import Litestar
from litestar.config.compression import CompressionConfig
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.handlers import BaseRouteHandler
from litestar.types import Scope as LitestarScope

from paceline.api.auth import App, Authentication, Receive, Scope, Send
from paceline.api.context import ApiContext
from paceline.api.errors import on_http_exception, on_paceline_error, on_unexpected_error
from paceline.api.leader_proxy import LeaderProxy
from paceline.api.openapi import openapi_route
from paceline.api.request_body import SMALL_BYTES
from paceline.api.routes import campaigns, concurrency, events, gateway, hosts, keys, overview, results, slots, units
from paceline.api.slot_shortcut import SlotShortcut
from paceline.api.static_files import dashboard_routes
from paceline.api.tokens import AccessTokens
from paceline.api.url_paths import fold_path
from paceline.errors import PacelineError

ROUTES: Final[list[BaseRouteHandler]] = [
    *overview.ROUTES,
    *concurrency.ROUTES,
    *campaigns.ROUTES,
    *results.ROUTES,
    *units.ROUTES,
    *slots.ROUTES,
    *hosts.ROUTES,
    *gateway.ROUTES,
    *keys.ROUTES,
    *events.ROUTES,
]
"""Every route that the OpenAPI document describes."""
CONTEXT: Final = "paceline.context"
COMPRESSION: Final = CompressionConfig(
    backend="gzip", minimum_size=1_000, gzip_compress_level=1, exclude=["^/v1/events", "^/v1/slots", "^/v1/hosts/"]
)
"""Level 1: the timeline is a tenth as long, and the loop is held for a millisecond. Streams are sent as they come."""


def create_app(context: ApiContext, *, tokens: AccessTokens, host: str) -> App:
    """Return the ASGI application. `host` is the address that its server is bound to."""
    application = SlotShortcut(_application(context), context)
    return Authentication(application, tokens=tokens, host=host, hosts=context.settings.api.hosts)


def create_standby_app(context: ApiContext, proxy: LeaderProxy, *, tokens: AccessTokens, host: str) -> App:
    """Return the application of a process that stands by.

    Calls of the gateway bring keys of their own, which the leader checks.
    """
    application = proxy.beside(_application(context))
    authenticated = Authentication(application, tokens=tokens, host=host, hosts=context.settings.api.hosts)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        is_call = scope["type"] == "http" and scope["path"].startswith("/gateway/")
        await (proxy.pass_on if is_call else authenticated)(scope, receive, send)

    return serve


class SwitchedApp:
    """The application that a server serves now. It changes when the process takes or loses the lead."""

    def __init__(self) -> None:
        self.current: App = _starting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.current(scope, receive, send)


async def _starting(scope: Scope, receive: Receive, send: Send) -> None:
    raise RuntimeError("the server was started before its application")


@cache
def _handlers() -> Any:
    """Return the handlers, made once per process because that takes 0.1 s. Each request carries its context."""
    return Litestar(
        [*ROUTES, *dashboard_routes(), openapi_route(ROUTES)],
        dependencies={"context": Provide(_context_of, sync_to_thread=False)},
        exception_handlers={
            PacelineError: on_paceline_error,
            HTTPException: on_http_exception,
            Exception: on_unexpected_error,
        },
        compression_config=COMPRESSION,
        openapi_config=None,
        request_max_body_size=SMALL_BYTES,
        logging_config=None,
        signature_types=[ApiContext],
    )


def _context_of(scope: LitestarScope) -> ApiContext:
    return cast(dict[str, ApiContext], scope)[CONTEXT]


def _application(context: ApiContext) -> App:
    """Fold names with slashes into one part of the path, and answer HEAD as GET without its body."""
    handlers = _handlers()

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            is_head = scope["method"] == "HEAD"
            method = "GET" if is_head else scope["method"]
            scope = {**scope, "path": fold_path(scope["path"], method), "method": method, CONTEXT: context}
            send = _head_only(send) if is_head else send
        await handlers(scope, receive, send)

    return serve


def _head_only(send: Send) -> Send:
    """End the response after its head, even one whose body would have no end."""
    is_over = False

    async def send_head(message: MutableMapping[str, Any]) -> None:
        nonlocal is_over
        if message["type"] != "http.response.body":
            await send(message)
        elif not is_over:
            is_over = True
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    return send_head
