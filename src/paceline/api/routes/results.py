"""The routes of results: what the units of a campaign did and what it cost, as rows and as a report."""

import asyncio
from typing import Annotated

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, QueryParameter

from paceline.api.context import Context
from paceline.api.schemas import Results
from paceline.engine.campaign_lookup import find_campaign
from paceline.views.campaign_report import CampaignReport, ReportBuilder
from paceline.views.results import row_of_unit

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
) -> Results:
    page = context.store.units(campaign=find_campaign(context.store, name).name, limit=limit, cursor=cursor)
    return Results(results=[row_of_unit(unit) for unit in page.units], cursor=page.cursor)


@get("/v1/campaigns/{name:str}/summary", summary="The report on a campaign: totals, what needs you, what stands out")
async def get_summary(name: FromPath[str], context: Context) -> CampaignReport:
    report = ReportBuilder(context.store, name)
    for _ in report.steps():
        await asyncio.sleep(0)  # the engine runs on this loop
    return report.report()


ROUTES: list[HTTPRouteHandler] = [get_results, get_summary]
