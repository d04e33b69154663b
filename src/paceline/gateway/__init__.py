"""The gateway: a reverse proxy for LLM APIs that lets every request wait for a slot instead of failing with 429.

    door       one port for the API and the gateway
    entry      who asks, and what of the request goes on
    routes     to which account and address a path leads
    exchange   one request from its head to the end of its answer
    upload     the client's body on its way to the upstream
    attempt    one try at the upstream
    answer     the answer on its way to the client
    upstream   connections to the upstreams
    learning   what answers teach the Governor
    unpacking  reading along with compressed answers

Bodies and streams pass byte for byte, as they come, in both directions; nothing is read faster than it goes on.
"""

from paceline.gateway.server_protocol import front_door
from paceline.gateway.service import Gateway, Timeouts

__all__ = ["Gateway", "Timeouts", "front_door"]
