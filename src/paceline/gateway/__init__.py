"""The gateway: a reverse proxy for LLM APIs in which every request waits for a slot instead of failing with 429.

    server_protocol     one port for the API and the gateway
    exchange            what all exchanges share: limiter, pools, timer, shutdown; one request, from its head to its end
    request_access      keys of clients; who may do what, by head and body, and the request as it is forwarded
    routes              what a path means: account, upstream, scope; the answers of the gateway itself; the requests
                        that run and wait, and the last that ended
    key_pools           the account of a pool that serves a request, and the accounts that fail
    spend_ledger        what requests cost and may cost, and the budgets of keys and accounts
    request_accounting  what is noted and measured at each step of a request, and how people see it
    client_response     the client's body on its way upstream, and the response on its way to the client
    upstream_call       one call to the upstream, and the signals in its response
    upstream_pool       connections to the upstreams
    http_heads          headers, chunks and codings as bytes

Bodies and streams pass byte for byte, as they come, in both directions. Nothing is read faster than it is forwarded.
"""

from paceline.gateway.exchange import Gateway, Timeouts
from paceline.gateway.request_access import BackgroundStore, ClientKeys, RequestAccess
from paceline.gateway.server_protocol import make_server_protocol
from paceline.gateway.spend_ledger import SpendLedger

__all__ = [
    "BackgroundStore",
    "ClientKeys",
    "Gateway",
    "RequestAccess",
    "SpendLedger",
    "Timeouts",
    "make_server_protocol",
]
