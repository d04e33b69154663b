"""Slots under any client built on httpx2, as the official SDKs are: requests wait for their turn instead of failing.

client = httpx2.AsyncClient(transport=SlotTransport(limiter, "anthropic/work-key"))
"""

import httpx2

from paceline.integrations.transports import AsyncGate, SyncGate

__all__ = ["SlotTransport", "SyncSlotTransport"]


class SlotTransport(AsyncGate, httpx2.AsyncBaseTransport):
    """Takes a slot for each request, from a Limiter of this program or from the daemon through a Client.

    The slot lasts until the answer has ended, failed, or was closed. A refusal that is safe to send again waits in
    line once more, for up to `max_wait` seconds in all; then the client gets the provider's own kind of 429.
    `transport` carries the requests; without it a plain one is made.
    """


class SyncSlotTransport(SyncGate, httpx2.BaseTransport):
    """The same for blocking clients, from any thread but that of the limiter's own event loop."""
