"""What is asked of keys and budgets in the course of a request: whose it is, whether it may continue, what it has used.

Here: the order of reading and checking. Both wait for a store at most as long as `background_store` says, and then
use what is known. Never here: the rules themselves.
"""

from typing import TYPE_CHECKING

from paceline.engine.key_commands import KEY_PREFIX
from paceline.gateway.client_keys import (
    AFTER_WAIT_SECONDS,
    MISS_SECONDS,
    OUTAGE_SECONDS,
    READ_AGAIN_SECONDS,
)
from paceline.gateway.errors import GatewayError
from paceline.gateway.request_access import INVALID_TOKEN, RequestAccess, RequestHead, UpstreamRequest
from paceline.gateway.request_log import CallRecord
from paceline.gateway.upstream_call import UpstreamCall
from paceline.store import ClientKey

if TYPE_CHECKING:
    from paceline.gateway.service import Gateway

_PREFIX = KEY_PREFIX.encode()


def presents_client_key(head: RequestHead) -> bool:
    """Return whether a key of a client may be in the head. Others need not wait for a store."""
    return _PREFIX in b" ".join([head.target, *[value for _, value in head.headers]])


async def authorized(access: RequestAccess, head: RequestHead) -> UpstreamRequest:
    """Return the request to forward, by the keys as they are now. Raises `GatewayError`."""
    if access.keys.is_due(READ_AGAIN_SECONDS) and presents_client_key(head):
        await access.keys.catch_up(READ_AGAIN_SECONDS)
    try:
        return access.authorize(head)
    except GatewayError as error:
        if error.code != INVALID_TOKEN or not presents_client_key(head):
            raise
    await access.keys.catch_up(MISS_SECONDS)  # it may have been made a moment ago
    try:
        return access.authorize(head)
    except GatewayError as error:
        if error.code == INVALID_TOKEN and access.keys.is_outage:
            message = "this key is not known, and the keys cannot be read now; try again"
            raise GatewayError(503, "keys_not_read", message, retry_after=OUTAGE_SECONDS) from None
        raise


async def check_after_wait(gateway: "Gateway", request: UpstreamRequest, model: str | None) -> None:
    """Raise `GatewayError` if the request, which has a slot now, may no longer be sent: much may have happened."""
    if request.client is not None:
        await gateway.access.keys.catch_up(AFTER_WAIT_SECONDS)
        gateway.access.keys.check_present(request.client)
        await check_budget(gateway, request.client)
    if request.route.pool is None:  # a pool checks its accounts when it chooses one
        gateway.account_budgets.check(request.route.account, model)


async def check_budget(gateway: "Gateway", client: ClientKey) -> None:
    """Raise `GatewayError` if the budget of the key is reached."""
    if client.budget is not None:
        await gateway.budgets.catch_up(client)
        gateway.budgets.check(client)


def note_use(
    gateway: "Gateway", request: UpstreamRequest, record: CallRecord, call: UpstreamCall, request_bytes: int
) -> None:
    """Count what a call has used, and announce the budgets that it has brought near their end."""
    client, account = request.client, request.route.account
    has_budget = account.daily_budget is not None or (client is not None and client.budget is not None)
    gateway.calls.used(record, call, request_bytes, has_budget=has_budget)
    gateway.account_budgets.note(account)
    if client is not None:
        gateway.budgets.note(client)
