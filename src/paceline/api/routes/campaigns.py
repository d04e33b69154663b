"""`/v1/campaigns`: add, look at, change, steer and remove campaigns.

What is added runs commands on this machine, so that it can be switched off. Never here: checks; they are the same as
for plan files and commands.
"""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from litestar import Request, delete, get, patch, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery
from msgspec import UNSET

from paceline.api import schemas as wire
from paceline.api.context import OnSite, Site
from paceline.api.errors import Refused
from paceline.api.request_body import PLAN_BYTES, read_body
from paceline.config_files.documents import Document
from paceline.core import ScopeStatus
from paceline.engine import commands as orders
from paceline.engine.campaign_lookup import find_campaign
from paceline.plans.plan_file import CAMPAIGN, UNIT, Plan, plan_of
from paceline.plans.preflight import check_plan
from paceline.plans.unit_sources import UNITS
from paceline.store import Campaign, UnitCounts
from paceline.views.capacity import quota_line

SOURCE = "body"
LATEST = 253402300800.0  # the year 10000
SWITCHED_OFF = "campaigns cannot be added over HTTP here: add_campaigns = false in [api]; use `paceline add PLAN`"


# -- looking -----------------------------------------------------------------------------------------


def campaign_views(
    site: Site, campaigns: Iterable[Campaign], statuses: Iterable[ScopeStatus], now: float
) -> list[wire.CampaignView]:
    """Read at one moment: `site.pace` must have caught up."""
    counts = site.store.counts()
    by_scope = {status.scope: status for status in statuses}
    return [_view(site, each, counts.get(each.name, UnitCounts()), by_scope, now) for each in campaigns]


def _view(
    site: Site, campaign: Campaign, counts: UnitCounts, statuses: Mapping[str, ScopeStatus], now: float
) -> wire.CampaignView:
    left = counts.todo + counts.running
    rate = site.pace.rate(campaign.name, left if campaign.state == "active" else 0, now)
    return wire.CampaignView(
        id=campaign.name,
        name=campaign.name,
        state=campaign.state,
        priority=campaign.priority,
        max_sessions=campaign.max_sessions,
        strategy=campaign.strategy,
        deadline=campaign.deadline,
        agent=campaign.agent,
        model=campaign.model,
        accounts=campaign.accounts,
        max_attempts=campaign.max_attempts,
        timeout=campaign.timeout,
        command=campaign.command,
        created_at=campaign.created_at,
        units=wire.CampaignTotals(**msgspec.structs.asdict(counts)),
        running=counts.running,
        finished=campaign.state == "active" and not left,
        throughput=rate.per_hour,
        eta=rate.eta,
        quota=quota_line(site, campaign, statuses, now) if left else None,
    )


def view_of(site: Site, name: str) -> wire.CampaignView:
    """One campaign, as it is now."""
    now = site.now
    site.pace.catch_up(now)
    return campaign_views(site, [find_campaign(site.store, name)], site.engine.limiter.statuses(), now)[0]


@get("/v1/campaigns", sync_to_thread=False, summary="All campaigns, in the order they were added")
def list_campaigns(site: OnSite) -> wire.Campaigns:
    now = site.now
    site.pace.catch_up(now)
    views = campaign_views(site, site.store.campaigns(), site.engine.limiter.statuses(), now)
    return wire.Campaigns(campaigns=views)


@get("/v1/campaigns/{name:str}", sync_to_thread=False, summary="One campaign")
def get_campaign(name: FromPath[str], site: OnSite) -> wire.CampaignView:
    return view_of(site, name)


# -- adding ------------------------------------------------------------------------------------------


@post(
    "/v1/campaigns",
    status_code=201,
    request_max_body_size=PLAN_BYTES,
    summary="Add a campaign, or units to one, as a plan file would",
    opt={"body": wire.CampaignBody},
)
async def add_campaign(
    request: Request[Any, Any, Any], site: OnSite, update: FromQuery[bool] = False
) -> wire.CampaignAdded:
    if not site.settings.api.add_campaigns:
        raise Refused(403, SWITCHED_OFF)
    body = await read_body(request, wire.CampaignBody)
    known = {campaign.name: campaign.created_at for campaign in site.store.campaigns()}
    now = site.now
    plan = await asyncio.to_thread(_read_plan, site, body, known, now)  # a million units must not hold up the engine
    async with site.adding:
        orders.check_not_cancelled(site.store, plan.campaign.name)
        added = await orders.add_plan_in_steps(site.store, plan, update=update, now=now)
    site.obey()
    return wire.CampaignAdded(
        campaign=view_of(site, plan.campaign.name),
        added=added.added,
        unchanged=added.unchanged,
        changed=added.changed,
        updated=added.updated,
    )


def _read_plan(site: Site, body: wire.CampaignBody, known: Mapping[str, float], now: float) -> Plan:
    values: dict[str, object] = {CAMPAIGN: _without_nulls(_with_deadline(body.campaign))}
    if body.unit:
        values[UNIT] = [_without_nulls(unit) for unit in body.unit]
    if body.units is not None:
        values[UNITS] = _without_nulls(body.units)
    document = Document(SOURCE, values)
    plan = plan_of(document, site.folder, site.settings, now=now, added_at=known)
    check_plan(plan, SOURCE, settings=site.settings, environ=site.environ)
    return plan


def _without_nulls(table: Mapping[str, object]) -> dict[str, object]:
    """Null is what TOML says by leaving a key out."""
    return {key: value for key, value in table.items() if value is not None}


def _with_deadline(table: Mapping[str, object]) -> dict[str, object]:
    deadline = table.get("deadline")
    return dict(table) if deadline is None else {**table, "deadline": _moment(deadline)}


def _moment(value: object) -> datetime:
    """JSON has no times: ISO 8601 text with a zone, or Unix seconds."""
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            if moment.tzinfo is not None:
                return moment
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < LATEST:
            return datetime.fromtimestamp(value, UTC)
    except ValueError:
        pass  # said below
    raise Refused(400, "deadline: must be a time with its zone, such as 2026-12-01T08:00:00Z, or Unix seconds")


# -- changing ----------------------------------------------------------------------------------------


@patch(
    "/v1/campaigns/{name:str}",
    summary="Change how a campaign is run; what is left out stays",
    opt={"body": wire.CampaignChanges},
)
async def change_campaign(request: Request[Any, Any, Any], name: FromPath[str], site: OnSite) -> wire.CampaignView:
    body = await read_body(request, wire.CampaignChanges)
    given = {key: value for key, value in msgspec.structs.asdict(body).items() if value is not UNSET}
    orders.change_campaign(site.store, site.settings, name, _with_deadline(given), now=site.now)
    site.obey()
    return view_of(site, name)


@delete(
    "/v1/campaigns/{name:str}",
    sync_to_thread=False,
    status_code=200,
    summary="Remove a campaign with all its units; refused while one of them runs",
)
def delete_campaign(name: FromPath[str], site: OnSite) -> wire.Ok:
    orders.delete_campaign(site.store, name, now=site.now)
    site.obey()
    return wire.Ok()


@post(
    "/v1/campaigns/{name:str}/pause",
    sync_to_thread=False,
    status_code=200,
    summary="Start nothing more of it; sessions that run go on to their end",
)
def pause_campaign(name: FromPath[str], site: OnSite) -> wire.CampaignView:
    orders.pause_campaigns(site.store, [name], now=site.now)
    site.obey()
    return view_of(site, name)


@post("/v1/campaigns/{name:str}/resume", sync_to_thread=False, status_code=200, summary="Let it go on")
def resume_campaign(name: FromPath[str], site: OnSite) -> wire.CampaignView:
    orders.resume_campaigns(site.store, [name], now=site.now)
    site.obey()
    return view_of(site, name)


@post(
    "/v1/campaigns/{name:str}/cancel",
    sync_to_thread=False,
    status_code=200,
    summary="Give up all that is not done, for good; sessions that run are ended",
)
def cancel_campaign(name: FromPath[str], site: OnSite) -> wire.CampaignView:
    orders.cancel_campaign(site.store, name, now=site.now)
    site.obey()
    return view_of(site, name)


@post(
    "/v1/campaigns/{name:str}/retry",
    sync_to_thread=False,
    status_code=200,
    summary="Try held and quarantined units again, with their counters at zero",
)
def retry_campaign(name: FromPath[str], site: OnSite) -> wire.CampaignView:
    orders.retry_campaign(site.store, name, now=site.now)
    site.obey()
    return view_of(site, name)


@post("/v1/pause", sync_to_thread=False, status_code=200, summary="Pause all campaigns")
def pause_all(site: OnSite) -> wire.Changed:
    changed = orders.pause_campaigns(site.store, None, now=site.now)
    site.obey()
    return wire.Changed(campaigns=changed, state="paused")


@post("/v1/resume", sync_to_thread=False, status_code=200, summary="Let all campaigns go on")
def resume_all(site: OnSite) -> wire.Changed:
    changed = orders.resume_campaigns(site.store, None, now=site.now)
    site.obey()
    return wire.Changed(campaigns=changed, state="active")


ROUTES: list[HTTPRouteHandler] = [
    list_campaigns,
    get_campaign,
    add_campaign,
    change_campaign,
    delete_campaign,
    pause_campaign,
    resume_campaign,
    cancel_campaign,
    retry_campaign,
    pause_all,
    resume_all,
]
