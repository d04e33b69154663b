"""The routes of hosts: what people see of them, and what their workers ask for.

Workers only ever ask. Their routes speak `hosts/messages.py` and are not in the OpenAPI document: both ends are
Paceline. Never here: what an order or a report means (`hosts/leader`).
"""

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
from litestar import Request, get, post
from litestar.params import FromPath
from litestar.response import Stream

from paceline.api.bodies import PLAN_BYTES, HttpError, read_body
from paceline.api.context import ApiContext, Context
from paceline.engine.engine import Engine
from paceline.errors import LeadLost
from paceline.hosts.jobs import MOST_SENT_BYTES, may_send, write_wanted
from paceline.hosts.leader.registry import HostRegistry
from paceline.hosts.messages import Joined, JoinRequest, Orders, OrdersRequest, Reports, ReportsTaken
from paceline.views.status import Hosts, host_views

PIECE_BYTES = 1 << 20
"""Pieces in which a bundle is sent."""
INCOMING = "incoming"
"""The folder in the home for what workers send."""
LEFT_SECONDS = 86400.0
"""The age at which a file there is of no use: a transfer takes minutes."""


class WantedCommits(msgspec.Struct, frozen=True, kw_only=True):
    """The commits that a worker has of a repository."""

    have: tuple[str, ...] = ()


@get("/v1/hosts", sync_to_thread=False, summary="Other machines, their workers, logins and sessions")
def get_hosts(context: Context) -> Hosts:
    return Hosts(hosts=host_views(context.host_states()))


@post("/v1/hosts/{name:str}/join", status_code=200, include_in_schema=False)
async def post_join(request: Request[Any, Any, Any], context: Context, name: FromPath[str]) -> Joined:
    return _hosts(context).join(name, await read_body(request, JoinRequest))


@post("/v1/hosts/{name:str}/orders", status_code=200, include_in_schema=False)
async def post_orders(request: Request[Any, Any, Any], context: Context, name: FromPath[str]) -> Orders:
    orders = await _hosts(context).orders(name, await read_body(request, OrdersRequest))
    _hosts(context)  # the lead may have been lost meanwhile
    return orders


@post("/v1/hosts/{name:str}/reports", status_code=200, include_in_schema=False, request_max_body_size=PLAN_BYTES)
async def post_reports(request: Request[Any, Any, Any], context: Context, name: FromPath[str]) -> ReportsTaken:
    return _hosts(context).report(name, await read_body(request, Reports))


@post("/v1/hosts/{name:str}/bundles/{call_id:str}/wanted", status_code=200, include_in_schema=False)
async def post_wanted(
    request: Request[Any, Any, Any], context: Context, name: FromPath[str], call_id: FromPath[str]
) -> Stream:
    body = await read_body(request, WantedCommits)
    call = _hosts(context).call_of(name, call_id)
    with _transfer(context, call_id) as file:
        await asyncio.to_thread(write_wanted, call, body.have, file)
    return Stream(_pieces(file), media_type="application/octet-stream")


@post(
    "/v1/hosts/{name:str}/bundles/{call_id:str}",
    status_code=200,
    include_in_schema=False,
    request_max_body_size=MOST_SENT_BYTES,
)
async def post_bundle(
    request: Request[Any, Any, Any], context: Context, name: FromPath[str], call_id: FromPath[str]
) -> dict[str, str]:
    if not may_send(_hosts(context).call_of(name, call_id)):
        raise HttpError(400, f"nothing is to be sent for the call {call_id!r:.80}")
    with _transfer(context, call_id) as file, file.open("wb") as received:
        async for piece in request.stream():
            await asyncio.to_thread(received.write, piece)
    _hosts(context).receive(name, call_id, file)
    return {}


@contextlib.contextmanager
def _transfer(context: ApiContext, call_id: str) -> Iterator[Path]:
    """Yield the file for a transfer, which is deleted if that fails.

    One transfer of a call runs at a time: each may take as much disk as a repository.
    """
    if call_id in context.transfers:
        raise HttpError(503, f"commits for the call {call_id!r:.80} are on their way already; try again")
    file = _incoming(context)
    context.transfers.add(call_id)
    try:
        yield file
    except BaseException:
        file.unlink(missing_ok=True)
        raise
    finally:
        context.transfers.discard(call_id)


def _hosts(context: ApiContext) -> HostRegistry:
    """Return the hosts of the leader. Raise `LeadLost` unless this process is sure to lead."""
    engine = context.engine
    if not isinstance(engine, Engine) or not engine.lead.is_trusted:
        raise LeadLost("this engine does not lead now; ask again")
    return engine.hosts


def _incoming(context: ApiContext) -> Path:
    """Return a new file for a transfer. Those that a process left when it was killed are deleted."""
    folder = context.settings.home / INCOMING
    folder.mkdir(mode=0o700, exist_ok=True)
    for left in folder.iterdir():
        with contextlib.suppress(OSError):
            if left.stat().st_mtime < time.time() - LEFT_SECONDS:
                left.unlink()
    return folder / secrets.token_hex(8)


async def _pieces(file: Path) -> AsyncIterator[bytes]:
    """Yield the file, and delete it."""
    try:
        with file.open("rb") as opened:
            while piece := await asyncio.to_thread(opened.read, PIECE_BYTES):
                yield piece
    finally:
        with contextlib.suppress(OSError):
            os.unlink(file)
