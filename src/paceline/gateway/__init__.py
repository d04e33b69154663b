"""The gateway: a reverse proxy for LLM APIs in which every request waits for a slot instead of failing with 429.

    server_protocol   one port for the API and the gateway
    request_access    authentication, and the request as it is forwarded
    client_keys       keys of clients, and what each may use
    client_checks     what is asked of keys and budgets in the course of a request
    background_store  reading a store in threads
    key_rules         what a key allows in the body of a call
    key_budgets       what a key may spend
    account_budgets   what the calls of an account may cost in a day
    budget_events     the events of both
    routes            the account and the upstream address of a path
    key_pools         the account of a pool that serves a request
    member_failures   the accounts of pools whose calls fail
    model_names       the models that have a scope of their own
    exchange          one request, from its head to the end of its response
    wait_comments     signs of life for a client whose stream waits
    request_log       the requests that run and wait, and the last that ended
    spend_totals      what requests cost, by day, key, account and model
    call_book         what is noted at each step of a request, and how people see it
    request_times     what an exchange measures
    request_body      the client's body on its way upstream
    upstream_call     one call to the upstream
    client_response   the response on its way to the client
    upstream_pool     connections to the upstreams
    response_signals  signals in responses, reported to the slot
    decompression     reading compressed responses in passing
    http_heads        headers and chunks as bytes
    socket_probes     dead peers, noticed by the operating system
    service           what all exchanges share: limiter, pools, timer, shutdown

Bodies and streams pass byte for byte, as they come, in both directions. Nothing is read faster than it is forwarded.
"""

from paceline.gateway.background_store import BackgroundStore
from paceline.gateway.client_keys import ClientKeys
from paceline.gateway.request_access import RequestAccess
from paceline.gateway.server_protocol import make_server_protocol
from paceline.gateway.service import Gateway, Timeouts
from paceline.gateway.spend_totals import SpendTotals

__all__ = [
    "BackgroundStore",
    "ClientKeys",
    "Gateway",
    "RequestAccess",
    "SpendTotals",
    "Timeouts",
    "make_server_protocol",
]
