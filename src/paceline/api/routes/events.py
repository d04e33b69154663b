"""The routes of events: the event stream, the timeline and the metrics."""

import asyncio
from typing import Annotated, Any

from litestar import Request, Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.params import HeaderParameter, QueryParameter
from litestar.response import Stream

from paceline.api.context import Context
from paceline.api.events.sse import EventFilter, is_event_prefix
from paceline.api.prometheus import encode
from paceline.errors import InvalidInput
from paceline.views.timeline import LONGEST_HOURS, TimelineView

LARGEST_ID = (1 << 63) - 1
LONGEST_NAME = 300
STREAM_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}

EventId = Annotated[
    int | None,
    QueryParameter(ge=0, le=LARGEST_ID, description="Events after this id, stored ones first; 0 for all of them."),
]


@get(
    "/v1/events",
    media_type="text/event-stream",
    sync_to_thread=False,
    summary="Events as they happen (SSE), from now on or from any stored id",
)
def get_events(
    context: Context,
    resumed: Annotated[
        str | None, HeaderParameter(name="Last-Event-ID", description="The id of the last event, as browsers send it.")
    ] = None,
    last_event_id: EventId = None,
    after: EventId = None,
    unit: Annotated[
        str | None, QueryParameter(max_length=2 * LONGEST_NAME, description="Only this unit, as campaign/unit.")
    ] = None,
    name: Annotated[
        list[str] | None, QueryParameter(max_items=50, description="Only names that start so, such as `unit.`.")
    ] = None,
    audit: Annotated[
        bool, QueryParameter(description="Only changes by people and programs; `fields.by` says who made them.")
    ] = False,
) -> Stream:
    ids = (_header_id(resumed), last_event_id, after)  # the header wins: a browser reconnects with its old address
    position = next((each for each in ids if each is not None), None)
    chunks = context.background.stream.read(after=position, wanted=_event_filter(unit, name or [], audit))
    return Stream(chunks, media_type="text/event-stream", headers=STREAM_HEADERS)


def _header_id(text: str | None) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and int(text) <= LARGEST_ID):
        raise InvalidInput(f"Last-Event-ID: {text!r:.80} is not an event id; leave it out to start now")
    return int(text)


def _event_filter(unit: str | None, names: list[str], audit: bool) -> EventFilter:
    if unit is not None and not all(unit.partition("/")):
        raise InvalidInput(f"unit: {unit!r:.80} is not a unit id; write campaign/unit")
    for name in names:
        if not is_event_prefix(name):
            raise InvalidInput(f"name: no event name starts with {name!r:.80}; try unit. or scope.")
    return EventFilter(unit, tuple(names), audit)


@get("/v1/timeline", summary="Sessions, marks, and in-flight against the limit over the last hours")
async def get_timeline(
    context: Context,
    hours: Annotated[float, QueryParameter(gt=0, le=LONGEST_HOURS, description="How many hours, up to now.")] = 6.0,
) -> TimelineView:
    return await context.background.timeline(hours)


@get("/metrics", media_type="text/plain", summary="Metrics for Prometheus")
async def get_metrics(context: Context, request: Request[Any, Any, Any]) -> Response[bytes]:
    families = await context.background.metrics()
    content, media_type = await asyncio.to_thread(encode, families, request.headers.get("accept", ""))
    return Response(content, media_type=media_type)


ROUTES: list[HTTPRouteHandler] = [get_events, get_timeline, get_metrics]
