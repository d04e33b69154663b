"""`/v1/status`, `/v1/overview` and what they are made of: the engine, the pool, sessions, accounts and windows.

An answer is of one moment: nothing is awaited while it is put together. None of it costs more with more units.
"""

import os
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from litestar import Request, get, put
from litestar.handlers import HTTPRouteHandler

from paceline.api import schemas as wire
from paceline.api.context import OnSite, Site
from paceline.api.request_body import read_body
from paceline.api.routes.campaigns import campaign_views
from paceline.core import ScopeStatus
from paceline.core.values.scopes import SESSIONS
from paceline.engine import commands as orders
from paceline.engine.dispatcher import split_line
from paceline.engine.session import LiveSession
from paceline.settings import AccountSettings
from paceline.store import Campaign
from paceline.views.capacity import capacity_rows, windows_of
from paceline.views.safe_text import printable, total_counts

VERSION = version("paceline")


@get("/healthz", sync_to_thread=False, summary="Whether the server answers; needs no token", security=[])
def get_health() -> wire.Ok:
    return wire.Ok()


@get("/v1/status", sync_to_thread=False, summary="The whole of it at a glance")
def get_status(site: OnSite) -> wire.Status:
    now = site.now
    site.pace.catch_up(now)
    return _status(site, site.store.campaigns(), now)


def _status(site: Site, campaigns: list[Campaign], now: float) -> wire.Status:
    counts = site.store.counts()
    total = total_counts(counts)
    active = [campaign.name for campaign in campaigns if campaign.state == "active" and campaign.name in counts]
    states = {campaign.state for campaign in campaigns}
    rate = site.pace.rate_of_all({name: counts[name].todo + counts[name].running for name in active}, now)
    return wire.Status(
        engine=wire.EngineState(
            state="paused" if "paused" in states and "active" not in states else "leading",
            since=site.since,
            version=VERSION,
            pid=os.getpid(),
        ),
        pool=wire.PoolState(
            sessions=site.governor.get_limit(SESSIONS),
            running=total.running,
            waiting=total.todo - total.parked,
            parked=total.parked,
        ),
        units=wire.UnitTotals(
            todo=total.todo,
            running=total.running,
            done=total.done,
            quarantined=total.quarantined,
            held=total.held,
            cancelled=total.cancelled,
        ),
        next_resume_at=site.store.next_resume_at(),
        throughput=rate.per_hour,
        eta=rate.eta,
    )


@get("/v1/overview", sync_to_thread=False, summary="Status, campaigns, capacity and sessions at one moment")
def get_overview(site: OnSite) -> wire.Overview:
    now = site.now
    site.pace.catch_up(now)
    campaigns = site.store.campaigns()
    statuses = site.engine.limiter.statuses()
    return wire.Overview(
        at=now,
        last_event_id=site.pace.seen,
        status=_status(site, campaigns, now),
        campaigns=campaign_views(site, campaigns, statuses, now),
        capacity=capacity_rows(site, statuses, campaigns),
        sessions=[_session(session) for session in site.engine.live_sessions()],
        waits=_waits(site, campaigns),
    )


def _waits(site: Site, campaigns: list[Campaign]) -> list[wire.Wait]:
    names = {campaign.name for campaign in campaigns}
    lines = [(*split_line(line), deferred) for line, deferred in site.engine.why_lines().items()]
    return [
        wire.Wait(
            campaign=campaign,
            account=account or None,
            reason=deferred.reason,
            scope=deferred.scope,
            detail=deferred.detail,
            retry_at=deferred.retry_at,
        )
        for campaign, account, deferred in lines
        if campaign in names
    ]


# -- the pool ----------------------------------------------------------------------------------------


@get("/v1/pool", sync_to_thread=False, summary="How many sessions may run at once; null for no limit")
def get_pool(site: OnSite) -> wire.Pool:
    return wire.Pool(sessions=site.governor.get_limit(SESSIONS))


@put(
    "/v1/pool",
    summary="Set how many sessions run at once; what runs is never ended for it",
    opt={"body": wire.PoolBody},
)
async def put_pool(request: Request[Any, Any, Any], site: OnSite) -> wire.Pool:
    body = await read_body(request, wire.PoolBody)
    orders.set_pool(site.store, body.sessions, now=site.now)
    site.obey()
    return wire.Pool(sessions=site.governor.get_limit(SESSIONS))


# -- sessions, accounts, windows ---------------------------------------------------------------------


@get("/v1/sessions", sync_to_thread=False, summary="What runs now")
def list_sessions(site: OnSite) -> wire.Sessions:
    return wire.Sessions(sessions=[_session(session) for session in site.engine.live_sessions()])


def _session(session: LiveSession) -> wire.SessionView:
    unit = session.unit
    return wire.SessionView(
        unit=unit.id,
        campaign=unit.campaign,
        attempt=session.handle.attempt_id,
        account=session.account.name if session.account is not None else None,
        scope=session.scope,
        agent=session.profile.name,
        model=session.campaign.model,
        session_id=session.conversation,
        started_at=unit.started_at,
        tries=unit.counters.tries,
        pid=session.handle.state().pid,
        ending=None if session.ending is None else printable(session.ending.reason),
    )


@get("/v1/accounts", sync_to_thread=False, summary="The accounts of the settings; never a secret")
def list_accounts(site: OnSite) -> wire.Accounts:
    statuses = {status.scope: status for status in site.engine.limiter.statuses()}
    accounts = site.settings.accounts.values()
    return wire.Accounts(
        accounts=[_account(account, site.environ, statuses.get(account.scope)) for account in accounts]
    )


def _account(account: AccountSettings, environ: Mapping[str, str], status: ScopeStatus | None) -> wire.AccountView:
    key = account.key_env
    return wire.AccountView(
        name=account.name,
        provider=account.provider,
        kind=account.kind,
        scope=account.scope,
        reserve=account.reserve,
        base_url=account.base_url,
        key=None if key is None else wire.Variable(name=key, is_set=bool(environ.get(key))),
        env=[wire.Variable(name=name, is_set=bool(value)) for name, value in account.env.items()],
        held=status.held if status is not None else None,
        windows=status.windows if status is not None else (),
    )


@get("/v1/windows", sync_to_thread=False, summary="Quota windows and what is believed of them")
def list_windows(site: OnSite) -> wire.Windows:
    return wire.Windows(windows=windows_of(site.engine.limiter.statuses()))


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
