"""The routes of units: pages of them, each with its prompt, history, output and what it waits for, and its control.

Agents' output is hostile: it is sent as text without control characters, and never more than was requested. What units
on other hosts have printed and changed stays there, and is fetched when somebody asks for it.
"""

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from litestar import Request, Response, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery, QueryParameter

from paceline.agents.account import split_login
from paceline.api.bodies import HttpError, read_optional, unfold
from paceline.api.context import ApiContext, Context
from paceline.api.schemas import PauseBody, UnitLog, UnitRetry, Units, WhyAnswer
from paceline.core.values.session_output import Channel
from paceline.engine import commands
from paceline.engine.engine import Engine
from paceline.engine.retention import workspace_host
from paceline.errors import PacelineError, UnknownName
from paceline.events import ATTEMPT_STARTS
from paceline.executors.spool import read_tail
from paceline.hosts.jobs import OutputPiece, read_output, read_patch
from paceline.hosts.worker.job_runner import output_piece
from paceline.redaction import without_secrets
from paceline.store import Unit
from paceline.views.safe_text import plain_text
from paceline.views.transcript import NO_OUTPUT, last_output, transcript_provider
from paceline.views.unit_changes import UnitDiff, unit_change, unit_diff
from paceline.views.units import (
    UnitDetail,
    UnitFilter,
    UnitOrder,
    UnitQuery,
    UnitView,
    read_units,
    unit_detail,
    unit_history,
    unit_view,
)
from paceline.views.why import explain_unit
from paceline.workspaces import stored_location

log = logging.getLogger("paceline.api")

CHANNELS: Final[tuple[Channel, ...]] = ("stdout", "stderr", "screen")
ANSWER_SECONDS: Final = 15.0
"""How long a worker may take: it reads a file, or git compares a work tree with its base."""
MOST_PIECE_BYTES: Final = 1 << 20


def host_of(unit: Unit) -> str:
    """Return the host of the unit's last attempt; '' for the leader's own machine."""
    return split_login(unit.account or "")[1]


async def _read_remote(
    context: ApiContext, unit: Unit, channel: Channel, position: int | None, most: int
) -> OutputPiece:
    """Return a piece of what the unit's last attempt printed on its host; without a position the end of it."""
    host = host_of(unit)
    if not isinstance(context.engine, Engine):
        raise HttpError(503, f"its output is on the host {host}; the engine that leads can fetch it")
    job = context.engine.hosts.of_unit(unit).jobs.start(read_output, unit.attempt_id or "", channel, position, most)
    context.engine.wake()
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await asyncio.wrap_future(job)
    except TimeoutError:
        raise HttpError(503, f"the host {host} does not answer; the output is there, and can be read later") from None


@contextlib.asynccontextmanager
async def output_folder(context: ApiContext, unit: Unit, most: int) -> AsyncIterator[str | None]:
    """Yield a folder with the output of the unit's last attempt; None if there is none.

    That of another host is a copy of its end, which is deleted afterwards.
    """
    if unit.attempt_id is None:
        yield None
    elif not host_of(unit):
        yield context.spool.folder(unit.attempt_id)
    else:
        with tempfile.TemporaryDirectory(prefix="paceline-output-") as folder:
            for channel in CHANNELS:
                piece = await _read_remote(context, unit, channel, None, most)
                if piece.data:
                    (Path(folder) / channel).write_bytes(piece.data)
            yield folder


async def read_remote_patch(context: ApiContext, unit: Unit, most: int) -> OutputPiece | None:
    """Return the change of a unit that works on another host; None if it is known here, or nobody can ask the host."""
    place, host, engine = stored_location(unit.result), workspace_host(unit.result), context.engine
    if place is None or host is None or unit.state == "done" or not isinstance(engine, Engine):
        return None
    if host not in (state.name for state in engine.hosts.remote_states() if state.presence == "joined"):
        return None
    job = engine.hosts.named(host).jobs.start(read_patch, place, most)
    engine.wake()
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await asyncio.wrap_future(job)
    except (PacelineError, TimeoutError) as error:
        log.info("the change of %s was not read on %s: %s", unit.id, host, error or "it took too long")
        return None


# -- the routes --------------------------------------------------------------------------------------

POSITION_HEADER = "x-paceline-position"
"""Where the next piece of an output begins."""
COMPLETE_HEADER = "x-paceline-complete"
"""`1` if no more will come."""
SCREEN_BYTES = 256 * 1024
"""How much of the end of an output on another host a transcript is made from."""
MOST_UNITS = 1000
MOST_SEARCHED = 200
"""Characters of a search: ids are shorter, and the text is compared with every unit that is read."""
TAIL_BYTES = 64 * 1024
DIFF_BYTES = 1 << 20
MOST_TAIL_BYTES = 4 << 20
"""Larger answers would take too much memory; `paceline logs` streams all of the output."""

State = Annotated[
    UnitFilter | None,
    QueryParameter(name="state", description="Only units in this state; `todo` has both `waiting` and `parked`."),
]
Limit = Annotated[int, QueryParameter(ge=1, le=MOST_UNITS, description="How many units at most.")]
Search = Annotated[
    str,
    QueryParameter(max_length=MOST_SEARCHED, description="A part of the id, reason or account."),
]
Order = Annotated[
    UnitOrder, QueryParameter(description="`plan`, or `attention`: running and stopped units first, done ones last.")
]
Attempt = Annotated[
    str | None,
    QueryParameter(description="An earlier attempt, by the `attempt` of its events."),
]
Cursor = Annotated[str | None, QueryParameter(description="The cursor of the page before.")]


@get("/v1/units", sync_to_thread=False, summary="Units, page by page, in the order of their plans or by state")
def list_units(
    context: Context,
    campaign: FromQuery[str | None] = None,
    chosen: State = None,
    limit: Limit = 100,
    cursor: Cursor = None,
    search: Search = "",
    order: Order = "plan",
) -> Units:
    query = UnitQuery(campaign=campaign, chosen=chosen, search=search.strip(), order=order)
    page = read_units(context.store, query, limit=limit, cursor=cursor)
    waits = _wait_texts(context, [unit for unit in page.units if unit.state == "todo"])
    return Units(units=[unit_view(unit) for unit in page.units], cursor=page.cursor, waits_for=waits)


def _wait_texts(context: ApiContext, units: Sequence[Unit]) -> dict[str, str]:
    """Return what each of the units waits for, as its `why` says it."""
    campaigns = {campaign.name: campaign for campaign in context.store.campaigns()} if units else {}
    waits, leaderless, trouble = context.engine.wait_reasons(), context.leaderless, context.trouble
    statuses = () if leaderless is None else context.engine.limiter.statuses()
    found: dict[str, str] = {}
    for unit in units:
        if (campaign := campaigns.get(unit.campaign)) is not None:
            answers = explain_unit(unit, campaign, waits, leaderless=leaderless, statuses=statuses, trouble=trouble)
            found[unit.id] = "; ".join(dict.fromkeys(each.detail for each in answers))
    return found


def _find_unit(context: ApiContext, folded_id: str) -> Unit:
    unit_id = unfold(folded_id)
    unit = context.store.unit(unit_id) if "/" in unit_id else None
    if unit is None:
        raise UnknownName(f"there is no unit {unit_id!r:.120}; ids are campaign/unit, and /v1/units lists them")
    return unit


@get("/v1/units/{unit_id:str}", summary="A unit with its prompt, history and the end of its transcript")
async def get_unit(unit_id: FromPath[str], context: Context) -> UnitDetail:
    unit = _find_unit(context, unit_id)
    provider = transcript_provider(context.store, context.settings, unit)
    try:
        async with output_folder(context, unit, SCREEN_BYTES) as folder:
            # Drawing a screen takes a while.
            screen = "" if folder is None else await asyncio.to_thread(last_output, folder, provider, context.zone)
    except HttpError as error:
        screen = f"({error})\n"  # its host does not answer now
    return unit_detail(unit, screen=screen, history=unit_history(context.store, unit.id))


@get("/v1/units/{unit_id:str}/why", sync_to_thread=False, summary="What a unit waits for, since when and until when")
def get_why(unit_id: FromPath[str], context: Context) -> WhyAnswer:
    unit = _find_unit(context, unit_id)
    campaign = commands.find_campaign(context.store, unit.campaign)
    waits = context.engine.wait_reasons()
    statuses = context.engine.limiter.statuses()
    first, *others = explain_unit(
        unit,
        campaign,
        waits,
        leaderless=context.leaderless,
        statuses=statuses,
        hosts=context.host_states() if isinstance(context.engine, Engine) else (),
        trouble=context.trouble,
    )
    return WhyAnswer(**msgspec.structs.asdict(first), others=others)


@get("/v1/units/{unit_id:str}/log", summary="The end of an attempt's output, and its transcript")
async def get_log(
    unit_id: FromPath[str],
    context: Context,
    channel: Annotated[Channel | None, QueryParameter(description="Only this channel.")] = None,
    tail_bytes: Annotated[
        int, QueryParameter(ge=1, le=MOST_TAIL_BYTES, description="How much of the end of each channel.")
    ] = TAIL_BYTES,
    attempt: Attempt = None,
) -> UnitLog:
    unit = _at_attempt(context, _find_unit(context, unit_id), attempt)
    provider = transcript_provider(context.store, context.settings, unit)
    async with output_folder(context, unit, max(tail_bytes, SCREEN_BYTES)) as folder:
        if unit.attempt_id is None or folder is None:
            why = "has not been started yet" if unit.attempt_id is None else NO_OUTPUT
            raise UnknownName(f"{unit.id} {why}")
        channels = [each for each in CHANNELS if channel in (None, each)]
        texts, is_truncated = await asyncio.to_thread(_read_tails, folder, channels, tail_bytes)
        transcript = None
        if channel is None:
            transcript = await asyncio.to_thread(last_output, folder, provider, context.zone)
    return UnitLog(
        unit=unit.id,
        attempt=unit.attempt_id,
        stdout=texts.get("stdout"),
        stderr=texts.get("stderr"),
        screen=texts.get("screen"),
        transcript=transcript,
        truncated=is_truncated,
    )


def _at_attempt(context: ApiContext, unit: Unit, attempt: str | None) -> Unit:
    """Return the unit as it was in one of its attempts, as far as its output is concerned."""
    if attempt is None or attempt == unit.attempt_id:
        return unit
    starts = (each.event for each in unit_history(context.store, unit.id) if each.event.name in ATTEMPT_STARTS)
    if all(event.fields.get("attempt") != attempt for event in starts):
        raise UnknownName(f"{unit.id} has no attempt {attempt!r:.80}; the `attempt` of its events names them")
    return msgspec.structs.replace(unit, attempt_id=attempt)


@get("/v1/units/{unit_id:str}/output", summary="A piece of the last attempt's output, as it was printed")
async def get_output(
    unit_id: FromPath[str],
    context: Context,
    channel: Annotated[Channel, QueryParameter(description="The channel.")] = "stdout",
    position: Annotated[int, QueryParameter(ge=0, description="The byte at which the piece begins.")] = 0,
) -> Response[bytes]:
    unit = _find_unit(context, unit_id)
    attempt = unit.attempt_id
    if attempt is None:
        raise UnknownName(f"{unit.id} has not been started yet")
    if host_of(unit):
        piece = await _read_remote(context, unit, channel, position, MOST_PIECE_BYTES)
    else:
        piece = await asyncio.to_thread(output_piece, context.spool, attempt, channel, position, MOST_PIECE_BYTES)
    headers = {POSITION_HEADER: str(piece.position), COMPLETE_HEADER: "1" if piece.is_complete else "0"}
    return Response(piece.data, media_type="application/octet-stream", headers=headers)


@get("/v1/units/{unit_id:str}/diff", summary="What a unit changed, as a patch")
async def get_diff(
    unit_id: FromPath[str],
    context: Context,
    most_bytes: Annotated[
        int, QueryParameter(ge=1, le=MOST_TAIL_BYTES, description="How much of the beginning of the patch.")
    ] = DIFF_BYTES,
) -> UnitDiff:
    unit = _find_unit(context, unit_id)
    there = await read_remote_patch(context, unit, most_bytes)
    if there is not None:
        fields = msgspec.structs.asdict(unit_change(unit))
        return UnitDiff(**fields, patch=plain_text(there.data), truncated=not there.is_complete)
    return await asyncio.to_thread(unit_diff, unit, most_bytes=most_bytes)


def _read_tails(folder: str, channels: Sequence[Channel], most_bytes: int) -> tuple[dict[Channel, str], bool]:
    """Return the end of each channel as text, and whether one of them may be truncated."""
    tails = {channel: read_tail(folder, channel, most_bytes) for channel in channels}
    is_truncated = max(map(len, tails.values())) >= most_bytes
    return {channel: without_secrets(plain_text(data)) for channel, data in tails.items()}, is_truncated


# -- control -----------------------------------------------------------------------------------------


def _command(
    name: str, act: Callable[..., object], body: type[msgspec.Struct] | None, summary: str
) -> HTTPRouteHandler:
    """Return the route that does this to a unit. `act` takes the members of the body by their names."""

    async def command(request: Request[Any, Any, Any], unit_id: FromPath[str], context: Context) -> UnitView:
        said = {} if body is None else msgspec.structs.asdict(await read_optional(request, body))
        act(context.store, _find_unit(context, unit_id), now=context.now, **said)
        context.apply_commands()
        return unit_view(_find_unit(context, unit_id))

    command.__name__ = f"post_unit_{name}"
    options = {} if body is None else {"body": body}
    return post(f"/v1/units/{{unit_id:str}}/{name}", status_code=200, summary=summary, opt=options)(command)


COMMANDS = [
    _command("retry", commands.retry_unit, UnitRetry, "Try a unit again; `fresh` gives up its conversation"),
    _command("cancel", commands.cancel_unit, None, "Give up a unit; its session is ended. `retry` undoes it"),
    _command(
        "pause",
        commands.pause_unit,
        PauseBody,
        "Hold a unit that waits; with `at_turn` also one that runs, once its turn ends",
    ),
    _command("resume", commands.resume_unit, None, "Let a held unit run again"),
    _command("accept", commands.accept_unit, None, "Take an unverified unit as done"),
]
