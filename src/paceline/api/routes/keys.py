"""The routes of clients' keys: create one, list them, revoke one."""

from typing import Any

from litestar import Request, delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from paceline.api.context import Context
from paceline.api.request_body import read_body
from paceline.engine.key_commands import KeyRequest, create_key, revoke_key
from paceline.views.keys import KeyList, NewKeyView, RevokedKeyView, key_list, new_key_view, revoked_key_view


@get("/v1/keys", sync_to_thread=False, summary="The keys of clients of the gateway, never their text")
def get_keys(context: Context) -> KeyList:
    store = context.store
    return key_list(store.client_keys(), store.spend, context.calls.unsaved(), context.now)


@post("/v1/keys", status_code=201, opt={"body": KeyRequest}, summary="Create a key; its text is answered once")
async def post_key(request: Request[Any, Any, Any], context: Context) -> NewKeyView:
    wanted = await read_body(request, KeyRequest)
    unsaved = context.calls.unsaved()
    created = create_key(context.store, context.settings, wanted, now=context.now, unsaved=unsaved)
    context.apply_commands()
    return new_key_view(created.record, created.text)


@delete("/v1/keys/{name:str}", status_code=200, sync_to_thread=False, summary="Revoke a key")
def delete_key(context: Context, name: FromPath[str]) -> RevokedKeyView:
    record = revoke_key(context.store, name, now=context.now)
    context.apply_commands()
    return revoked_key_view(record)


ROUTES: list[HTTPRouteHandler] = [get_keys, post_key, delete_key]
