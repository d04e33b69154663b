"""The routes of the fleet: health, status, overview, pool, sessions, accounts, windows, events, timeline and metrics.

A response is of one moment: nothing is awaited while it is put together. No response costs more with more units, but
for those that have stopped.
"""

import asyncio
from typing import Annotated, Any

from litestar import Request, Response, get, put
from litestar.params import HeaderParameter, QueryParameter
from litestar.response import Stream

from paceline.api.bodies import read_body
from paceline.api.context import ApiContext, Context, encode
from paceline.api.event_stream import EventFilter, is_event_prefix
from paceline.api.schemas import Accounts, Ok, Overview, PoolBody, PoolSize, Sessions, Windows
from paceline.core.values.scopes import SESSIONS
from paceline.engine import commands
from paceline.errors import InvalidInput
from paceline.views.capacity import AccountView, account_views, capacity_rows, key_list, known_accounts, scope_windows
from paceline.views.status import Status, campaign_views, host_rows, read_status
from paceline.views.timeline import LONGEST_HOURS, TimelineView
from paceline.views.why import MOST_REASONS, NeedSources, needs, wait_rows


@get("/healthz", sync_to_thread=False, summary="Whether the server responds; needs no token", security=[])
def get_health() -> Ok:
    return Ok()


@get("/v1/status", sync_to_thread=False, summary="The engine, the pool and the units at a glance")
def get_status(context: Context) -> Status:
    return read_status(context.read_fleet(), context.process, context.throughput, context.call_counts)


@get("/v1/overview", sync_to_thread=False, summary="Status, campaigns, capacity and sessions at one moment")
def get_overview(context: Context) -> Overview:
    fleet = context.read_fleet()
    rows = capacity_rows(fleet, context.backlog())
    hosts = host_rows(context.host_states())
    stopped = fleet.store.stopped_units(limit=MOST_REASONS)
    activity = context.calls.activity() if context.leads else None
    keys = key_list(fleet.store.client_keys(), context.balances, fleet.now).keys
    return Overview(
        at=fleet.now,
        last_event_id=context.throughput.last_event_id,
        status=read_status(fleet, context.process, context.throughput, context.call_counts),
        campaigns=campaign_views(fleet, context.throughput),
        needs=needs(
            NeedSources(
                now=fleet.now,
                trouble=context.trouble,
                rows=rows,
                stopped=stopped,
                campaigns=fleet.campaigns,
                hosts=hosts,
                accounts=_accounts(context),
                keys=keys,
                pools=context.settings.key_pools.values(),
                failures=[] if activity is None else activity.failures,
            )
        ),
        capacity=rows,
        sessions=context.sessions(),
        hosts=hosts,
        waits=wait_rows(context.engine.wait_reasons(), fleet.campaigns),
        gateway=activity,
    )


# -- the pool ----------------------------------------------------------------------------------------


@get("/v1/pool", sync_to_thread=False, summary="How many sessions may run at once; null for no limit")
def get_pool(context: Context) -> PoolSize:
    return PoolSize(sessions=context.governor.get_limit(SESSIONS))


@put(
    "/v1/pool",
    summary="Set how many sessions may run at once; running sessions are not ended",
    opt={"body": PoolBody},
)
async def put_pool(request: Request[Any, Any, Any], context: Context) -> PoolSize:
    body = await read_body(request, PoolBody)
    commands.set_pool(context.store, body.sessions, now=context.now)
    context.apply_commands()
    return PoolSize(sessions=context.governor.get_limit(SESSIONS))


# -- sessions, accounts, windows ---------------------------------------------------------------------


@get("/v1/sessions", sync_to_thread=False, summary="Live sessions")
def list_sessions(context: Context) -> Sessions:
    return Sessions(sessions=context.sessions())


def _accounts(context: ApiContext) -> list[AccountView]:
    statuses = {status.scope: status for status in context.engine.limiter.statuses()}
    accounts = known_accounts(context.settings, context.store.campaigns())
    return account_views(accounts, context.environ, statuses, context.balances, context.now)


@get("/v1/accounts", sync_to_thread=False, summary="The accounts, default logins included, without secrets")
def list_accounts(context: Context) -> Accounts:
    return Accounts(accounts=_accounts(context))


@get("/v1/windows", sync_to_thread=False, summary="Quota windows and what is believed of them")
def list_windows(context: Context) -> Windows:
    return Windows(windows=scope_windows(context.engine.limiter.statuses()))


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
