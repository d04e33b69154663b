"""`/v1/events`, `/v1/timeline` and `/metrics`: what happens, what happened, and the numbers of it. Looks only."""

import asyncio
from typing import Annotated, Any

from litestar import Request, Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.params import HeaderParameter, QueryParameter
from litestar.response import Stream

from paceline.api.context import OnSite
from paceline.api.events.sse import Wanted, is_known_beginning
from paceline.api.prometheus import encode
from paceline.errors import InvalidInput
from paceline.views.timeline import LONGEST_HOURS, TimelineView

LARGEST_ID = (1 << 63) - 1
LONGEST_NAME = 300
STREAM_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}

EventId = Annotated[
    int | None,
    QueryParameter(ge=0, le=LARGEST_ID, description="Events after this id, the stored ones first; 0 for all of them."),
]


@get(
    "/v1/events",
    media_type="text/event-stream",
    sync_to_thread=False,
    summary="Events as they come (SSE), from now on or from any that is kept",
)
def get_events(
    site: OnSite,
    resumed: Annotated[
        str | None, HeaderParameter(name="Last-Event-ID", description="The id of the last event, as browsers send it.")
    ] = None,
    last_event_id: EventId = None,
    after: EventId = None,
    unit: Annotated[
        str | None, QueryParameter(max_length=2 * LONGEST_NAME, description="Only of this unit, as campaign/unit.")
    ] = None,
    name: Annotated[
        list[str] | None, QueryParameter(max_items=50, description="Only names that begin so, such as `unit.`.")
    ] = None,
) -> Stream:
    asked = (_id_in_header(resumed), last_event_id, after)  # a browser that comes back has its old address
    place = next((each for each in asked if each is not None), None)
    chunks = site.watch.feed.read(after=place, wanted=_wanted(unit, name or []))
    return Stream(chunks, media_type="text/event-stream", headers=STREAM_HEADERS)


def _id_in_header(text: str | None) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and int(text) <= LARGEST_ID):
        raise InvalidInput(f"Last-Event-ID: {text!r:.80} is no id of an event; leave it out to begin now")
    return int(text)


def _wanted(unit: str | None, names: list[str]) -> Wanted:
    if unit is not None and not all(unit.partition("/")):
        raise InvalidInput(f"unit: {unit!r:.80} is no unit's id; write campaign/unit")
    for name in names:
        if not is_known_beginning(name):
            raise InvalidInput(f"name: no event's name begins with {name!r:.80}; try unit. or scope.")
    return Wanted(unit, tuple(names))


@get("/v1/timeline", summary="Sessions, marks, and in-flight against the limit over some hours")
async def get_timeline(
    site: OnSite,
    hours: Annotated[float, QueryParameter(gt=0, le=LONGEST_HOURS, description="Up to now.")] = 6.0,
) -> TimelineView:
    return await site.watch.timeline(hours)


@get("/metrics", media_type="text/plain", summary="The numbers of it, for Prometheus")
async def get_metrics(site: OnSite, request: Request[Any, Any, Any]) -> Response[bytes]:
    families = await site.watch.metrics()
    content, media_type = await asyncio.to_thread(encode, families, request.headers.get("accept", ""))
    return Response(content, media_type=media_type)


ROUTES: list[HTTPRouteHandler] = [get_events, get_timeline, get_metrics]
