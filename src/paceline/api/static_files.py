"""The files of the page, from the package: read once, and tagged by content so that browsers load them only once."""

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
    content: bytes
    media_type: str
    tag: str


def page_routes() -> list[HTTPRouteHandler]:
    """`/` and `/assets/...`; only what is in the package, whatever a path says."""
    assets = dict(_read(files("paceline.api") / "page", ""))

    @get("/", sync_to_thread=False, include_in_schema=False)
    def page(request: Request[Any, Any, Any]) -> Response[bytes]:
        return _answer(request, assets.get(INDEX))

    @get("/assets/{path:path}", sync_to_thread=False, include_in_schema=False)
    def asset(request: Request[Any, Any, Any], path: FromPath[str]) -> Response[bytes]:
        return _answer(request, assets.get(path.lstrip("/")))

    return [page, asset]


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


def _answer(request: Request[Any, Any, Any], asset: Asset | None) -> Response[bytes]:
    if asset is None:
        raise UnknownName("there is no such file of the page")
    headers = {"etag": asset.tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == asset.tag:
        return Response(b"", status_code=304, headers=headers, media_type=asset.media_type)
    return Response(asset.content, headers=headers, media_type=asset.media_type)
