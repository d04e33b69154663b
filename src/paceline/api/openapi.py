"""The OpenAPI document: Litestar's description of the routes, with bodies, error responses and authentication added.

Never here: what a route does.
"""

import functools
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Any, get_args, get_type_hints

import msgspec
from litestar import Litestar, Response, get
from litestar.di import Provide
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.openapi.config import OpenAPIConfig
from msgspec import UNSET

from paceline.api.auth import OPEN_PATH
from paceline.api.errors import ConcurrencyErrorBody, ErrorBody, is_concurrency

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

    @functools.cache
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
    bodies = _bodies(app)
    kinds = [ErrorBody, ConcurrencyErrorBody, *bodies.values()]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=REF)
    refs = dict(zip(kinds, schemas, strict=True))
    document.setdefault("components", {}).setdefault("schemas", {}).update(components)
    for kind in _structs_in(_answers(app)) - _structs_in(bodies.values()):
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


def _bodies(app: Litestar) -> dict[tuple[str, str], type]:
    """Return the type of each request body, by path and method as the document has them."""
    return {
        (route.path_format, method.lower()): handler.opt["body"]
        for route in app.routes
        for handler in getattr(route, "route_handlers", ())
        if "body" in handler.opt
        for method in handler.http_methods
    }


def _answers(app: Litestar) -> list[Any]:
    handlers = [each for route in app.routes for each in getattr(route, "route_handlers", ())]
    declared = [spec.data_container for each in handlers for spec in (each.responses or {}).values()]
    return [*(each.parsed_fn_signature.return_type.annotation for each in handlers), *declared]


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
