"""The application: every route over one engine, with its errors and its OpenAPI document, behind authentication.

The document is Litestar's description of the routes, with bodies, error responses and authentication added.

The files of the dashboard are read from the package once, and tagged by content so that browsers cache them.

Every handler of a module of `routes` is served. A handler receives the engine by a parameter `context: Context`. A
handler with a request body names the body's type in `opt={"body": Type}` and reads it with `bodies.read_body`.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath
from typing import Any, Final, cast, get_args, get_type_hints

import msgspec
from litestar import Litestar, Request, Response, get
from litestar.config.compression import CompressionConfig
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.openapi.config import OpenAPIConfig
from litestar.params import FromPath
from litestar.types import Scope as LitestarScope
from msgspec import UNSET

from paceline.api.auth import OPEN_PATH, Authentication
from paceline.api.bodies import (
    SMALL_BYTES,
    App,
    ConcurrencyErrorBody,
    ErrorBody,
    Receive,
    Scope,
    Send,
    fold_path,
    is_concurrency,
    on_http_exception,
    on_paceline_error,
    on_unexpected_error,
)
from paceline.api.context import ApiContext
from paceline.api.leader_proxy import LeaderProxy
from paceline.api.routes import campaigns, concurrency, gateway, hosts, overview, slots, units
from paceline.api.routes.slots import with_shortcut
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
    application = with_shortcut(_application(context), context)
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


def dashboard_routes() -> list[HTTPRouteHandler]:
    """Return the routes `/` and `/assets/...`. They serve files of the package only, whatever the path."""
    assets = dict(_read(files("paceline.api") / "page", ""))

    @get("/", sync_to_thread=False, include_in_schema=False)
    def dashboard(request: Request[Any, Any, Any]) -> Response[bytes]:
        return _asset(request, assets, INDEX)

    @get("/assets/{path:path}", sync_to_thread=False, include_in_schema=False)
    def asset(request: Request[Any, Any, Any], path: FromPath[str]) -> Response[bytes]:
        return _asset(request, assets, path.lstrip("/"))

    return [dashboard, asset]


def _read(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _read(entry, f"{prefix}{entry.name}/")
        elif not entry.name.endswith((".py", ".pyc")):
            yield prefix + entry.name, entry.read_bytes()


def _asset(request: Request[Any, Any, Any], assets: Mapping[str, bytes], name: str) -> Response[bytes]:
    if name not in assets:
        raise UnknownName("the dashboard has no such file")
    content, media_type = assets[name], TYPES.get(PurePosixPath(name).suffix, PLAIN)
    headers = {"etag": _tag(content), "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == headers["etag"]:
        return Response(b"", status_code=304, headers=headers, media_type=media_type)
    return Response(content, headers=headers, media_type=media_type)


@cache
def _tag(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


# -- the OpenAPI document --------------------------------------------------------------------------


DESCRIPTION = (
    "Everything the command line does, over HTTP. Times are Unix seconds, except under /concurrency, which uses"
    " milliseconds. Commands and slots are stored before they are answered. A signal takes effect at once and is stored"
    " with the engine's next pass."
)
ERRORS = {
    400: "The request is invalid; the detail names the field",
    401: "Missing or invalid token",
    403: "The token is read-only, or the request comes from another site",
    404: "There is nothing with this name",
    409: "The current state does not allow this",
    413: "The body is too large",
    415: "The body must be JSON",
    421: "Unknown Host",
    500: "Internal error",
    503: "The store or the engine cannot do it now; try again",
}
CONFIG = OpenAPIConfig(title="Paceline", version=version("paceline"), description=DESCRIPTION)
REF = "#/components/schemas/{name}"


def openapi_route(routes: Sequence[BaseRouteHandler]) -> HTTPRouteHandler:
    """Return `GET /openapi.json` for these routes. The document is built at the first request."""

    @cache
    def document() -> bytes:
        return msgspec.json.encode(build_document(routes))

    @get("/openapi.json", sync_to_thread=True, include_in_schema=False)  # building it takes half a second
    def openapi() -> Response[bytes]:
        return Response(document(), media_type="application/json")

    return openapi


def build_document(routes: Sequence[BaseRouteHandler]) -> dict[str, Any]:
    """Build the document from an application that is never called."""
    nothing = {"context": Provide(lambda: None, sync_to_thread=False)}
    app = Litestar(routes, dependencies=nothing, openapi_config=CONFIG, logging_config=None)
    document: dict[str, Any] = msgspec.to_builtins(app.openapi_schema.to_schema())  # defaults may be structs
    handlers = {route.path_format: getattr(route, "route_handlers", ()) for route in app.routes}
    bodies: dict[tuple[str, str], type] = {
        (path, method.lower()): handler.opt["body"]
        for path, found in handlers.items()
        for handler in found
        if "body" in handler.opt
        for method in handler.http_methods
    }
    kinds = [ErrorBody, ConcurrencyErrorBody, *bodies.values()]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=REF)
    refs = dict(zip(kinds, schemas, strict=True))
    document.setdefault("components", {}).setdefault("schemas", {}).update(components)
    answers = [kind for found in handlers.values() for handler in found for kind in _answers_of(handler)]
    for kind in _structs_in(answers) - _structs_in(bodies.values()):
        _describe_sent(document["components"]["schemas"].get(kind.__name__, {}), kind)
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            body = bodies.get((path, method))
            if body is not None:
                operation["requestBody"] = _content(refs[body]) | {"required": True}
            schema = refs[ConcurrencyErrorBody if is_concurrency(path) else ErrorBody]
            _add_errors(operation, schema, _possible_errors(path, method, operation, has_body=body is not None))
    return document


def _answers_of(handler: Any) -> list[Any]:
    declared = [spec.data_container for spec in (handler.responses or {}).values()]
    return [handler.parsed_fn_signature.return_type.annotation, *declared]


def _structs_in(kinds: Iterable[Any]) -> set[type[msgspec.Struct]]:
    """Return the structs among these types, and those in their fields."""
    found: set[type[msgspec.Struct]] = set()
    waiting = list(kinds)
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind not in found:
            found.add(kind)
            waiting += get_type_hints(kind).values()
        waiting += get_args(kind)
    return found


def _describe_sent(schema: dict[str, Any], kind: type[msgspec.Struct]) -> None:
    """Name the fields that every response has: a default says how a value is made, not that its field is left out."""
    omits = kind.__struct_config__.omit_defaults
    always = {
        each.encode_name
        for each in msgspec.structs.fields(kind)
        if each.required or not (omits or each.default is UNSET)
    }
    schema["required"] = sorted(always)
    for name, field in schema.get("properties", {}).items():
        field.pop("default", None)
        if omits and name not in always and "oneOf" in field:
            field["oneOf"] = [each for each in field["oneOf"] if each != {"type": "null"}]


def _possible_errors(path: str, method: str, operation: dict[str, Any], *, has_body: bool) -> set[int]:
    """Return the statuses of the errors that a route shares with others; its own ones are declared at the route."""
    if path == OPEN_PATH:
        return {421, 500}
    possible = {401, 403, 421, 500, 503}
    if has_body or operation.get("parameters"):
        possible.add(400)
    if "{" in path or path == "/v1/units":  # its campaign may be unknown
        possible.add(404)
    if path.startswith(("/v1/campaigns", "/v1/units")) and method != "get":
        possible.add(409)
    if has_body:
        possible |= {413} if is_concurrency(path) else {413, 415}
    return possible


def _add_errors(operation: dict[str, Any], schema: dict[str, Any], possible: set[int]) -> None:
    responses: dict[str, Any] = operation["responses"]
    responses.pop("400", None)  # described in Litestar's own shape
    for status in sorted(possible):
        responses.setdefault(str(status), {"description": ERRORS[status], **_content(schema)})


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}
