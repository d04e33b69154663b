"""`/openapi.json`: what Litestar knows of the routes, with what it does not: bodies, refusals, and how to come in.

Never here: a route of its own meaning.
"""

import functools
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import msgspec
from litestar import Litestar, Response, get
from litestar.di import Provide
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.openapi.config import OpenAPIConfig

from paceline.api.auth import OPEN
from paceline.api.errors import OldProblem, Problem, is_old

DESCRIPTION = (
    "Everything the command line does, over HTTP. Times are Unix seconds, but for /concurrency, which has"
    " milliseconds. Orders and slots are stored before they are answered; a signal counts at once, and is stored with"
    " the next pass."
)
REFUSALS = {
    400: "Something in the request is wrong; the detail names it",
    401: "No token, or none of this home",
    403: "This token is for looking only, or the request comes from another site",
    404: "There is nothing of this name",
    409: "The state of things does not allow this now",
    413: "The body is too large",
    415: "The body must be JSON",
    421: "The Host header is none of this server",
    500: "A fault of Paceline's",
    503: "The store or the engine cannot do it now; try again",
}
CONFIG = OpenAPIConfig(title="Paceline", version=version("paceline"), description=DESCRIPTION)
REF = "#/components/schemas/{name}"


def description_route(routes: Sequence[BaseRouteHandler]) -> HTTPRouteHandler:
    """`GET /openapi.json` for these routes. The document is made when it is first asked for."""

    @functools.cache
    def described() -> bytes:
        return msgspec.json.encode(describe(routes))

    @get("/openapi.json", sync_to_thread=True, include_in_schema=False)  # to make it takes half a second
    def openapi() -> Response[bytes]:
        return Response(described(), media_type="application/json")

    return openapi


def describe(routes: Sequence[BaseRouteHandler]) -> dict[str, Any]:
    """The document, of an application that is described and never called."""
    nothing = {"site": Provide(lambda: None, sync_to_thread=False)}
    app = Litestar(routes, dependencies=nothing, openapi_config=CONFIG, logging_config=None)
    document = app.openapi_schema.to_schema()
    bodies = _bodies(app)
    kinds = [Problem, OldProblem, *bodies.values()]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=REF)
    refs = dict(zip(kinds, schemas, strict=True))
    document.setdefault("components", {}).setdefault("schemas", {}).update(components)
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            body = bodies.get((path, method))
            if body is not None:
                operation["requestBody"] = _content(refs[body]) | {"required": True}
            schema = refs[OldProblem if is_old(path) else Problem]
            _add_refusals(operation, schema, _possible(path, method, operation, has_body=body is not None))
    return document


def _bodies(app: Litestar) -> dict[tuple[str, str], type]:
    """The wire type of each body, by path and method as the document has them."""
    return {
        (route.path_format, method.lower()): handler.opt["body"]
        for route in app.routes
        for handler in getattr(route, "route_handlers", ())
        if "body" in handler.opt
        for method in handler.http_methods
    }


def _possible(path: str, method: str, operation: dict[str, Any], *, has_body: bool) -> set[int]:
    """The refusals that can happen there; a route names those of its own itself."""
    if path == OPEN:
        return {421, 500}
    possible = {401, 403, 421, 500, 503}
    if has_body or operation.get("parameters"):
        possible.add(400)
    if "{" in path or path == "/v1/units":  # whose campaign may not be there
        possible.add(404)
    if path.startswith("/v1/campaigns") and method != "get":
        possible.add(409)
    if has_body:
        possible |= {413} if is_old(path) else {413, 415}
    return possible


def _add_refusals(operation: dict[str, Any], schema: dict[str, Any], possible: set[int]) -> None:
    responses: dict[str, Any] = operation["responses"]
    responses.pop("400", None)  # Litestar's own shape
    for status in sorted(possible):
        responses.setdefault(str(status), {"description": REFUSALS[status], **_content(schema)})


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}
