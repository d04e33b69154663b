"""The routes of the fleet: health, status, overview, pool, sessions, accounts and windows.

A response is of one moment: nothing is awaited while it is put together. No response costs more with more units, but
for those that have stopped.
"""

from typing import Any

from litestar import Request, get, put
from litestar.handlers import HTTPRouteHandler

from paceline.api.context import ApiContext, Context
from paceline.api.request_body import read_body
from paceline.api.schemas import Accounts, Ok, Overview, PoolBody, PoolSize, Sessions, Windows
from paceline.core.values.scopes import SESSIONS
from paceline.engine import commands
from paceline.views.accounts import AccountView, account_views, known_accounts
from paceline.views.campaigns import campaign_views
from paceline.views.capacity import capacity_rows
from paceline.views.hosts import host_rows
from paceline.views.keys import key_list
from paceline.views.needs import MOST_REASONS, NeedSources, needs
from paceline.views.quota import scope_windows
from paceline.views.status import Status, read_status
from paceline.views.why import wait_rows


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
    keys = key_list(fleet.store.client_keys(), fleet.store.spend, context.calls.unsaved(), fleet.now).keys
    return Overview(
        at=fleet.now,
        last_event_id=context.throughput.last_event_id,
        status=read_status(fleet, context.process, context.throughput, context.call_counts),
        campaigns=campaign_views(fleet, context.throughput),
        needs=needs(
            NeedSources(
                now=fleet.now,
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
    store, unsaved = context.store, context.calls.unsaved()
    return account_views(accounts, context.environ, statuses, store.spend, unsaved, context.now)


@get("/v1/accounts", sync_to_thread=False, summary="The accounts, default logins included, without secrets")
def list_accounts(context: Context) -> Accounts:
    return Accounts(accounts=_accounts(context))


@get("/v1/windows", sync_to_thread=False, summary="Quota windows and what is believed of them")
def list_windows(context: Context) -> Windows:
    return Windows(windows=scope_windows(context.engine.limiter.statuses()))


ROUTES: list[HTTPRouteHandler] = [
    get_health,
    get_status,
    get_overview,
    get_pool,
    put_pool,
    list_sessions,
    list_accounts,
    list_windows,
]
