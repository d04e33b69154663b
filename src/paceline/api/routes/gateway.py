"""The routes of the gateway: its requests that run, wait and ended of late, what they cost, and its clients' keys."""

from typing import Annotated, Any

from litestar import Request, delete, get, post
from litestar.params import FromPath, QueryParameter

from paceline.api.bodies import read_body
from paceline.api.context import Context
from paceline.engine.commands import KeyRequest, create_key, revoke_key
from paceline.errors import UnknownName
from paceline.views.capacity import KeyList, NewKeyView, RevokedKeyView, key_list, new_key_view, revoked_key_view
from paceline.views.gateway_calls import (
    GatewayActivity,
    GatewayRequest,
    GatewayRequests,
    GatewaySpend,
    spend_fields,
    spend_since,
    spend_view,
)

MOST_RECENT = 1000


@get("/v1/gateway", sync_to_thread=False, summary="The calls of the gateway at a glance, and what they cost today")
def get_activity(context: Context) -> GatewayActivity:
    return context.calls.activity()


@get("/v1/gateway/requests", sync_to_thread=False, summary="Calls of the gateway that run, wait and ended of late")
def list_requests(
    context: Context,
    limit: Annotated[int, QueryParameter(ge=0, le=MOST_RECENT, description="How many ended ones at most.")] = 100,
) -> GatewayRequests:
    return context.calls.requests(limit)


@get("/v1/gateway/requests/{request_id:str}", sync_to_thread=False, summary="One call of the gateway")
def get_request(request_id: FromPath[str], context: Context) -> GatewayRequest:
    found = context.calls.request(request_id)
    if found is None:
        raise UnknownName(
            f"the gateway has no call {request_id!r:.80}; it keeps those of now and the last {MOST_RECENT}, "
            "until the daemon ends"
        )
    return found


@get("/v1/gateway/spend", sync_to_thread=False, summary="What calls of the gateway cost, by key, model, account or day")
def get_spend(
    context: Context,
    since: Annotated[
        str | None, QueryParameter(description="The first day (UTC), 2026-11-01, or 7d for the last seven days.")
    ] = None,
    by: Annotated[str, QueryParameter(description="day, key, account, model, or several of them.")] = "key",
    key: Annotated[str | None, QueryParameter(description="Only the calls of this key.")] = None,
) -> GatewaySpend:
    first, fields = spend_since(since, context.now), spend_fields(by)
    unsaved = [row for row in context.calls.unsaved() if row.day >= first and key in (None, row.key)]
    return spend_view([*context.store.spend(since=first, key=key), *unsaved], first, fields)


@get("/v1/keys", sync_to_thread=False, summary="The keys of clients of the gateway, never their text")
def get_keys(context: Context) -> KeyList:
    return key_list(context.store.client_keys(), context.balances, context.now)


@post("/v1/keys", status_code=201, opt={"body": KeyRequest}, summary="Create a key; its text is answered once")
async def post_key(request: Request[Any, Any, Any], context: Context) -> NewKeyView:
    wanted = await read_body(request, KeyRequest)
    record, text = create_key(context.store, context.settings, wanted, now=context.now)
    context.apply_commands()
    return new_key_view(record, text)


@delete("/v1/keys/{name:str}", status_code=200, sync_to_thread=False, summary="Revoke a key")
def delete_key(context: Context, name: FromPath[str]) -> RevokedKeyView:
    record = revoke_key(context.store, name, now=context.now)
    context.apply_commands()
    return revoked_key_view(record)
