"""Probes of a connection by the operating system: keep-alive packets, and a peer that closed its side."""

import asyncio
import select
import socket

PROBE_AFTER_SECONDS = 60
"""Silence before the first probe. Shorter than the idle time-out of common routers, which is some minutes."""
_PEER_HUNG_UP = getattr(select, "POLLRDHUP", 0)
"""Only Linux reports this event for a connection that is not being read."""


def enable_keepalive(transport: asyncio.BaseTransport) -> None:
    """Probe the connection while it is silent. That detects a vanished peer, and keeps routers from dropping it."""
    connection = transport.get_extra_info("socket")
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_AFTER_SECONDS)


def has_hung_up(transport: asyncio.BaseTransport) -> bool:
    """Return whether the peer has left, for a connection that is not being read. The loop does not poll those."""
    connection = transport.get_extra_info("socket")
    if connection is None or not _PEER_HUNG_UP or connection.fileno() < 0:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), _PEER_HUNG_UP)
    return bool(poll.poll(0))
