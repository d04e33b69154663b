"""The application: every route over one engine, with its errors and its OpenAPI document, behind authentication.

The files of the dashboard are read from the package once, and tagged by content so that browsers cache them.

Every handler of a module of `routes` is served. A handler receives the engine by a parameter `context: Context`. A
handler with a request body names the body's type in `opt={"body": Type}` and reads it with `request_body.read_body`.
"""

import hashlib
from collections.abc import MutableMapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final, cast

import msgspec
from litestar import Litestar, Request, Response, get
from litestar.config.compression import CompressionConfig
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.params import FromPath
from litestar.types import Scope as LitestarScope

from paceline.api.auth import App, Authentication, Receive, Scope, Send
from paceline.api.context import ApiContext
from paceline.api.errors import on_http_exception, on_paceline_error, on_unexpected_error
from paceline.api.leader_proxy import LeaderProxy
from paceline.api.openapi import openapi_route
from paceline.api.request_body import SMALL_BYTES, fold_path
from paceline.api.routes import campaigns, concurrency, gateway, hosts, overview, slots, units
from paceline.api.routes.slots import SlotShortcut
from paceline.api.tokens import AccessTokens
from paceline.errors import PacelineError, UnknownName

_MODULES: Final = (overview, concurrency, campaigns, units, slots, hosts, gateway)
ROUTES: Final[list[BaseRouteHandler]] = [
    *(each for module in _MODULES for each in vars(module).values() if isinstance(each, BaseRouteHandler)),
    *units.COMMANDS,
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


INDEX: Final = "index.html"
TYPES: Final = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
    ".json": "application/json",
}
PLAIN: Final = "text/plain"


class Asset(msgspec.Struct, frozen=True):
    """A file and its headers."""

    content: bytes
    media_type: str
    tag: str


def dashboard_routes() -> list[HTTPRouteHandler]:
    """Return the routes `/` and `/assets/...`. They serve files of the package only, whatever the path."""
    assets = dict(_read(files("paceline.api") / "page", ""))

    @get("/", sync_to_thread=False, include_in_schema=False)
    def dashboard(request: Request[Any, Any, Any]) -> Response[bytes]:
        return _response(request, assets.get(INDEX))

    @get("/assets/{path:path}", sync_to_thread=False, include_in_schema=False)
    def asset(request: Request[Any, Any, Any], path: FromPath[str]) -> Response[bytes]:
        return _response(request, assets.get(path.lstrip("/")))

    return [dashboard, asset]


def _read(folder: Traversable, prefix: str) -> list[tuple[str, Asset]]:
    found: list[tuple[str, Asset]] = []
    for entry in folder.iterdir():
        name = prefix + entry.name
        if entry.is_dir():
            found += _read(entry, f"{name}/")
        elif not name.endswith((".py", ".pyc")):
            content = entry.read_bytes()
            media_type = next((kind for ending, kind in TYPES.items() if name.endswith(ending)), PLAIN)
            found.append((name, Asset(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:32]}"')))
    return found


def _response(request: Request[Any, Any, Any], asset: Asset | None) -> Response[bytes]:
    if asset is None:
        raise UnknownName("the dashboard has no such file")
    headers = {"etag": asset.tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == asset.tag:
        return Response(b"", status_code=304, headers=headers, media_type=asset.media_type)
    return Response(asset.content, headers=headers, media_type=asset.media_type)
