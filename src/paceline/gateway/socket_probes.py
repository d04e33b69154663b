"""What the gateway asks of the operating system about a connection."""

import asyncio
import select
import socket

PROBE_AFTER_SECONDS = 60
_PEER_HUNG_UP = getattr(select, "POLLRDHUP", 0)
"""Only Linux tells this of a connection that is not being read."""


def keep_probing(transport: asyncio.BaseTransport) -> None:
    """Let the system probe a silent connection: a peer that vanished is noticed, and a router on the way keeps it."""
    connection = transport.get_extra_info("socket")
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_AFTER_SECONDS)


def has_hung_up(transport: asyncio.BaseTransport) -> bool:
    """Whether the peer of a connection that is not being read has left. The loop does not look at those."""
    connection = transport.get_extra_info("socket")
    if connection is None or not _PEER_HUNG_UP or connection.fileno() < 0:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), _PEER_HUNG_UP)
    return bool(poll.poll(0))
