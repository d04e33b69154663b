"""The routes of campaigns: add, read, change, control and delete them, and what their units did and cost.

An added campaign runs commands on this machine, so that adding can be switched off. Never here: checks; they are those
of plan files and commands.
"""

import asyncio
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from litestar import Request, delete, get, patch, post
from litestar.params import FromPath, FromQuery, QueryParameter
from msgspec import UNSET

from paceline.api import schemas
from paceline.api.bodies import PLAN_BYTES, HttpError, read_body, read_optional
from paceline.api.context import ApiContext, Context
from paceline.engine import commands, retention
from paceline.engine.commands import find_campaign
from paceline.errors import UnknownName
from paceline.settings.checks import Document
from paceline.settings.plan_file import CAMPAIGN, UNIT, CampaignChanges, Plan, plan_of
from paceline.settings.plan_units import UNITS
from paceline.settings.preflight import check_plan
from paceline.store import Unit
from paceline.views.campaign_report import PAGE_UNITS, CampaignReport, report_in_steps
from paceline.views.status import CampaignView, campaign_view, campaign_views
from paceline.views.unit_changes import mergeable_works
from paceline.views.units import result_row
from paceline.workspaces.merges import ConflictReport, FinishedWork, conflict_report

log = logging.getLogger("paceline.api")

SOURCE = "body"
"""The name of the document in error messages, where a plan file has its path."""
YEAR_10000 = 253402300800.0
SWITCHED_OFF = (
    "campaigns cannot be added over HTTP: [api] has add_campaigns = false; set it to true or use `paceline add PLAN`"
)


# -- reading -----------------------------------------------------------------------------------------


@get("/v1/campaigns", sync_to_thread=False, summary="All campaigns, in the order they were added")
def list_campaigns(context: Context) -> schemas.Campaigns:
    return schemas.Campaigns(campaigns=campaign_views(context.read_fleet(), context.throughput))


@get("/v1/campaigns/{name:str}", sync_to_thread=False, summary="One campaign")
def get_campaign(name: FromPath[str], context: Context) -> CampaignView:
    return _read_campaign(context, name)


def _read_campaign(context: ApiContext, name: str) -> CampaignView:
    return campaign_view(context.read_fleet(), commands.find_campaign(context.store, name), context.throughput)


def _after_command(context: ApiContext, name: str) -> CampaignView:
    context.apply_commands()
    return _read_campaign(context, name)


def _unit_of(context: ApiContext, campaign: str, unit_id: str) -> Unit:
    commands.find_campaign(context.store, campaign)
    unit = context.store.unit(unit_id)
    if unit is None or unit.campaign != campaign:
        raise UnknownName(f"{campaign} has no unit {unit_id!r:.200}")
    return unit


# -- adding ------------------------------------------------------------------------------------------


@post(
    "/v1/campaigns",
    status_code=201,
    request_max_body_size=PLAN_BYTES,
    summary="Add a campaign, or units to one, as a plan file does",
    opt={"body": schemas.CampaignBody},
)
async def post_campaign(
    request: Request[Any, Any, Any], context: Context, update: FromQuery[bool] = False
) -> schemas.CampaignAdded:
    if not context.settings.api.add_campaigns:
        raise HttpError(403, SWITCHED_OFF)
    body = await read_body(request, schemas.CampaignBody)
    known = {campaign.name: campaign.created_at for campaign in context.store.campaigns()}
    now = context.now
    plan = await asyncio.to_thread(_read_plan, context, body, known, now)  # a million units must not block the engine
    async with context.import_lock:
        commands.check_not_cancelled(context.store, plan.campaign.name)
        added = await commands.add_plan_in_steps(context.store, plan, update=update, now=now)
    return schemas.CampaignAdded(campaign=_after_command(context, plan.campaign.name), **msgspec.structs.asdict(added))


def _read_plan(context: ApiContext, body: schemas.CampaignBody, known: Mapping[str, float], now: float) -> Plan:
    values: dict[str, object] = {CAMPAIGN: _without_nulls(_with_deadline(body.campaign))}
    if body.unit:
        values[UNIT] = [_without_nulls(unit) for unit in body.unit]
    if body.units is not None:
        values[UNITS] = _without_nulls(body.units)
    document = Document(SOURCE, values)
    plan = plan_of(document, context.folder, context.settings, now=now, added_at=known)
    check_plan(plan, SOURCE, settings=context.settings, environ=context.environ)
    return plan


def _without_nulls(table: Mapping[str, object]) -> dict[str, object]:
    """Drop the nulls: TOML has none and leaves the key out instead."""
    return {key: value for key, value in table.items() if value is not None}


def _with_deadline(table: Mapping[str, object]) -> dict[str, object]:
    """Turn the deadline into a time, as TOML has it."""
    deadline = table.get("deadline")
    return dict(table) if deadline is None else {**table, "deadline": _parse_time(deadline)}


def _parse_time(value: object) -> datetime:
    """Parse ISO 8601 text with a zone, or Unix seconds: JSON has no type for times."""
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            if moment.tzinfo is not None:
                return moment
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < YEAR_10000:
            return datetime.fromtimestamp(value, UTC)
    except ValueError:
        pass  # answered below
    raise HttpError(400, "deadline: must be a time with its zone, such as 2026-12-01T08:00:00Z, or Unix seconds")


# -- changing and controlling ------------------------------------------------------------------------


@patch(
    "/v1/campaigns/{name:str}",
    summary="Change the settings of a campaign; missing fields stay as they are",
    opt={"body": CampaignChanges},
)
async def patch_campaign(request: Request[Any, Any, Any], name: FromPath[str], context: Context) -> CampaignView:
    body = await read_body(request, CampaignChanges)
    given = {key: value for key, value in msgspec.structs.asdict(body).items() if value is not UNSET}
    commands.change_campaign(context.store, context.settings, name, _with_deadline(given), now=context.now)
    return _after_command(context, name)


@delete(
    "/v1/campaigns/{name:str}",
    status_code=200,
    summary="Delete a campaign with all its units, their output and workspaces; refused while one of them runs",
)
async def remove_campaign(name: FromPath[str], context: Context, force: FromQuery[bool] = False) -> schemas.Ok:
    name, now = commands.find_campaign(context.store, name).name, context.now
    workspaces = retention.workspaces_of_campaign(context.store, name)
    if not force:
        await asyncio.to_thread(retention.check_workspaces, workspaces)
    commands.delete_campaign(context.store, name, now=now)
    context.apply_commands()
    await asyncio.to_thread(retention.remove_campaign_output, context.spool, name, now)
    retention.leave_workspaces(context.store, workspaces, force=force)
    kept = (await asyncio.to_thread(retention.remove_workspaces, workspaces, force=force)).kept
    for each in kept:
        log.warning("the workspace %s of the deleted campaign %s stays: %s", each.path, name, each.reason)
    return schemas.Ok()


@get(
    "/v1/campaigns/{name:str}/conflicts",
    summary="Which done units conflict with each other, or with what is checked out",
)
async def get_conflicts(name: FromPath[str], context: Context) -> ConflictReport:
    campaign = commands.find_campaign(context.store, name).name
    works: list[FinishedWork] = []
    page = context.store.units(campaign=campaign, state="done", limit=PAGE_UNITS)
    while True:
        works += mergeable_works(page.units)
        if page.cursor is None:
            return await asyncio.to_thread(conflict_report, works)
        await asyncio.sleep(0)  # the engine runs on this loop
        page = context.store.units(campaign=campaign, state="done", limit=PAGE_UNITS, cursor=page.cursor)


@post(
    "/v1/campaigns/{name:str}/pause",
    status_code=200,
    summary="Start no more units of it; running sessions continue to their end, with `at_turn` to that of their turn",
    opt={"body": schemas.PauseBody},
)
async def post_pause(request: Request[Any, Any, Any], name: FromPath[str], context: Context) -> CampaignView:
    body = await read_optional(request, schemas.PauseBody)
    commands.pause_campaigns(context.store, [name], at_turn=body.at_turn, now=context.now)
    return _after_command(context, name)


@post("/v1/campaigns/{name:str}/resume", sync_to_thread=False, status_code=200, summary="Start units of it again")
def post_resume(name: FromPath[str], context: Context) -> CampaignView:
    commands.resume_campaigns(context.store, [name], now=context.now)
    return _after_command(context, name)


@post(
    "/v1/campaigns/{name:str}/cancel",
    sync_to_thread=False,
    status_code=200,
    summary="Cancel all units that are not done; running sessions are ended. `retry` undoes it",
)
def post_cancel(name: FromPath[str], context: Context) -> CampaignView:
    commands.cancel_campaign(context.store, name, now=context.now)
    return _after_command(context, name)


@post(
    "/v1/campaigns/{name:str}/retry",
    status_code=200,
    summary="Run held, quarantined, unverified and cancelled units again, or those that stopped like one of them",
    opt={"body": schemas.CampaignRetry},
)
async def post_retry(request: Request[Any, Any, Any], name: FromPath[str], context: Context) -> CampaignView:
    body = await read_body(request, schemas.CampaignRetry) if await request.body() else None
    if body is None:
        commands.retry_campaign(context.store, name, now=context.now)
    else:
        commands.retry_units_like(context.store, _unit_of(context, name, body.like), now=context.now)
    return _after_command(context, name)


@post("/v1/pause", sync_to_thread=False, status_code=200, summary="Pause all campaigns")
def post_pause_all(context: Context) -> schemas.CampaignStates:
    changed = commands.pause_campaigns(context.store, None, now=context.now)
    context.apply_commands()
    return schemas.CampaignStates(campaigns=changed, state="paused")


@post("/v1/resume", sync_to_thread=False, status_code=200, summary="Resume all campaigns")
def post_resume_all(context: Context) -> schemas.CampaignStates:
    changed = commands.resume_campaigns(context.store, None, now=context.now)
    context.apply_commands()
    return schemas.CampaignStates(campaigns=changed, state="active")


MOST_RESULTS = 1000


@get(
    "/v1/campaigns/{name:str}/results",
    sync_to_thread=False,
    summary="What the units of a campaign did and what it cost, page by page",
)
def get_results(
    name: FromPath[str],
    context: Context,
    limit: Annotated[int, QueryParameter(ge=1, le=MOST_RESULTS, description="How many units at most.")] = 100,
    cursor: Annotated[str | None, QueryParameter(description="The cursor of the page before.")] = None,
) -> schemas.Results:
    page = context.store.units(campaign=find_campaign(context.store, name).name, limit=limit, cursor=cursor)
    return schemas.Results(results=[result_row(unit) for unit in page.units], cursor=page.cursor)


@get("/v1/campaigns/{name:str}/summary", summary="The report on a campaign: totals, what needs you, what stands out")
async def get_summary(name: FromPath[str], context: Context) -> CampaignReport:
    report = None
    for report in report_in_steps(context.store, name):  # noqa: B007 (the last one is the report)
        await asyncio.sleep(0)  # the engine runs on this loop
    assert report is not None
    return report
