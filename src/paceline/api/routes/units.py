"""`/v1/units`: pages of units, and each with its prompt, why, history and output. Looks only.

What agents printed is hostile: it leaves as text without control characters, and never more than was asked for.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery, QueryParameter

from paceline.api import schemas as wire
from paceline.api.context import OnSite, Site
from paceline.api.url_paths import unfold
from paceline.detect.stream import Channel
from paceline.engine.campaign_lookup import find_campaign
from paceline.errors import UnknownName
from paceline.executors.spool import read_tail
from paceline.store import Page, Unit
from paceline.views.safe_text import last_screen, phase_of, plain_text, printable, stored_state
from paceline.views.why import Why, explain_unit

CHANNELS: tuple[Channel, ...] = ("stdout", "stderr", "screen")
MOST_UNITS = 1000
MOST_LOOKS = 50
MOST_LOOKED_AT = 5_000
"""For one page of waiting or parked units, which are told apart by looking: it is cut short rather than late."""
MOST_HISTORY = 200
TAIL_BYTES = 64 * 1024
MOST_TAIL_BYTES = 4 << 20

State = Annotated[
    wire.Phase | None,
    QueryParameter(name="state", description="Only units in this state; `todo` has both `waiting` and `parked`."),
]
Most = Annotated[int, QueryParameter(ge=1, le=MOST_UNITS, description="How many units at most.")]
Cursor = Annotated[str | None, QueryParameter(description="Where the page before ended.")]


@get("/v1/units", sync_to_thread=False, summary="Units, page by page, in the order of their campaigns and plans")
def list_units(
    site: OnSite, campaign: FromQuery[str | None] = None, phase: State = None, limit: Most = 100, cursor: Cursor = None
) -> wire.Units:
    page = _page(site, campaign, phase, limit, cursor)
    return wire.Units(units=[unit_view(unit) for unit in page.units], cursor=page.cursor)


def _page(site: Site, campaign: str | None, phase: wire.Phase | None, limit: int, cursor: str | None) -> Page:
    state = None if phase is None else stored_state(phase)
    if phase not in ("waiting", "parked"):
        return site.store.units(campaign=campaign, state=state, limit=limit, cursor=cursor)
    found: list[Unit] = []
    looked_at = 0
    for _ in range(MOST_LOOKS):
        page = site.store.units(campaign=campaign, state=state, limit=limit - len(found), cursor=cursor)
        found += [unit for unit in page.units if phase_of(unit) == phase]
        looked_at += len(page.units)
        cursor = page.cursor
        if cursor is None or len(found) >= limit or looked_at >= MOST_LOOKED_AT:
            break
    return Page(units=tuple(found), cursor=cursor)


def unit_view(unit: Unit) -> wire.UnitView:
    return wire.UnitView(
        id=unit.id,
        campaign=unit.campaign,
        state=unit.state,
        attempts=unit.counters.failures,
        tries=unit.counters.tries,
        parks=unit.counters.parks,
        resume_at=unit.resume_at,
        reason=None if unit.reason is None else printable(unit.reason),
        account=unit.account or None,
        session_id=unit.conversation_id,
        started_at=unit.started_at,
        ended_at=unit.ended_at,
        exit_code=unit.exit_code,
    )


def _unit(site: Site, folded_id: str) -> Unit:
    unit_id = unfold(folded_id)
    unit = site.store.unit(unit_id) if "/" in unit_id else None
    if unit is None:
        raise UnknownName(f"there is no unit {unit_id!r:.120}; ids are campaign/unit, and /v1/units lists them")
    return unit


@get("/v1/units/{unit_id:str}", summary="All of a unit: prompt, history, last screen")
async def get_unit(unit_id: FromPath[str], site: OnSite) -> wire.UnitDetail:
    unit = _unit(site, unit_id)
    folder = site.spool.folder(unit.attempt_id) if unit.attempt_id is not None else None
    return wire.UnitDetail(
        **msgspec.structs.asdict(unit_view(unit)),
        prompt=unit.spec.prompt,
        cwd=unit.spec.cwd,
        output=unit.spec.output,
        attempt=unit.attempt_id,
        screen="" if folder is None else await asyncio.to_thread(last_screen, folder),  # to draw one takes a while
        history=_history(site, unit.id),
    )


def _history(site: Site, unit_id: str) -> list[wire.Happened]:
    events = site.store.events(unit=unit_id, limit=10 * MOST_HISTORY)[-MOST_HISTORY:]
    return [
        wire.Happened(
            id=stored.id,
            at=stored.event.at,
            name=stored.event.name,
            scope=stored.event.scope,
            fields=stored.event.fields,
        )
        for stored in events
    ]


@get("/v1/units/{unit_id:str}/why", sync_to_thread=False, summary="What holds it, since when, until when")
def get_why(unit_id: FromPath[str], site: OnSite) -> wire.WhyAnswer:
    unit = _unit(site, unit_id)
    campaign = find_campaign(site.store, unit.campaign)
    first, *others = explain_unit(unit, campaign, site.engine.why_lines(), leaderless=None)
    return wire.WhyAnswer(**_why_fields(first), others=[wire.WhyUnit(**_why_fields(other)) for other in others])


def _why_fields(why: Why) -> dict[str, Any]:
    return {**msgspec.structs.asdict(why), "detail": printable(why.detail)}


@get("/v1/units/{unit_id:str}/log", summary="The end of what its last try printed")
async def get_log(
    unit_id: FromPath[str],
    site: OnSite,
    channel: Annotated[Channel | None, QueryParameter(description="Only this one.")] = None,
    tail_bytes: Annotated[
        int, QueryParameter(ge=1, le=MOST_TAIL_BYTES, description="How much of the end of each channel.")
    ] = TAIL_BYTES,
) -> wire.UnitLog:
    unit = _unit(site, unit_id)
    folder = site.spool.folder(unit.attempt_id) if unit.attempt_id is not None else None
    if unit.attempt_id is None or folder is None:
        why = "has not been started yet" if unit.attempt_id is None else "has no output here any more"
        raise UnknownName(f"{unit.id} {why}")
    channels = [each for each in CHANNELS if channel in (None, each)]
    texts, is_cut = await asyncio.to_thread(_read_ends, folder, channels, tail_bytes)
    return wire.UnitLog(
        unit=unit.id,
        attempt=unit.attempt_id,
        stdout=texts.get("stdout"),
        stderr=texts.get("stderr"),
        screen=texts.get("screen"),
        truncated=is_cut,
    )


def _read_ends(folder: str, channels: Sequence[Channel], most: int) -> tuple[dict[Channel, str], bool]:
    """The text of each channel, and whether there may be more of one."""
    read = {channel: read_tail(folder, channel, most) for channel in channels}
    return {channel: plain_text(data) for channel, data in read.items()}, max(map(len, read.values())) >= most


ROUTES: list[HTTPRouteHandler] = [list_units, get_unit, get_why, get_log]
