"""The files of the dashboard: read from the package once, and tagged by content so that browsers cache them."""

import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final

import msgspec
from litestar import Request, Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from paceline.errors import UnknownName

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
