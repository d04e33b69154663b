"""The whole application: every route over one engine, with its errors and its OpenAPI document, behind the door.

A module of routes has a list `ROUTES` of handlers. They ask for what they work on by a parameter `site: OnSite`; one
that takes a body names its wire type in `opt={"body": Type}` and reads it with `bodies.read_body`.
"""

from collections.abc import MutableMapping
from functools import cache
from typing import Any, Final, cast

from litestar import Litestar
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.handlers import BaseRouteHandler
from litestar.types import Scope as LitestarScope

from paceline.api.auth import Access, App, Receive, Scope, Send
from paceline.api.context import Site
from paceline.api.errors import on_failure, on_http_problem, on_problem
from paceline.api.openapi import description_route
from paceline.api.request_body import SMALL_BYTES
from paceline.api.routes import campaigns, concurrency, overview, slots, units
from paceline.api.routes import events as observe
from paceline.api.slot_shortcut import SlotFront
from paceline.api.static_files import page_routes
from paceline.api.tokens import Tokens
from paceline.api.url_paths import fold_path
from paceline.errors import PacelineError

ROUTES: Final[list[BaseRouteHandler]] = [
    *overview.ROUTES,
    *concurrency.ROUTES,
    *campaigns.ROUTES,
    *units.ROUTES,
    *slots.ROUTES,
    *observe.ROUTES,
]
"""All that the document describes."""
SITE: Final = "paceline.site"


def create_app(site: Site, *, tokens: Tokens, host: str) -> App:
    """An ASGI application; `host` is what it is bound to."""
    return Access(SlotFront(_front(site), site), tokens=tokens, host=host, hosts=site.settings.api.hosts)


@cache
def _handlers() -> Any:
    """All of them, once in a process: to make them takes a tenth of a second. Each request brings its site."""
    return Litestar(
        [*ROUTES, *page_routes(), description_route(ROUTES)],
        dependencies={"site": Provide(_site_of, sync_to_thread=False)},
        exception_handlers={PacelineError: on_problem, HTTPException: on_http_problem, Exception: on_failure},
        openapi_config=None,
        request_max_body_size=SMALL_BYTES,
        logging_config=None,
        signature_types=[Site],
    )


def _site_of(scope: LitestarScope) -> Site:
    return cast(dict[str, Site], scope)[SITE]


def _front(site: Site) -> App:
    """Names with slashes in paths become one part of them, and HEAD is answered as GET is, without the body."""
    handlers = _handlers()

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            is_head = scope["method"] == "HEAD"
            method = "GET" if is_head else scope["method"]
            scope = {**scope, "path": fold_path(scope["path"]), "method": method, SITE: site}
            send = _head_only(send) if is_head else send
        await handlers(scope, receive, send)

    return serve


def _head_only(send: Send) -> Send:
    """An answer is over with its head, also one that would have no end."""
    is_over = False

    async def send_head(message: MutableMapping[str, Any]) -> None:
        nonlocal is_over
        if message["type"] != "http.response.body":
            await send(message)
        elif not is_over:
            is_over = True
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    return send_head
