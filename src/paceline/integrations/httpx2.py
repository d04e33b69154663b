"""Slots for any client built on httpx2, as the official SDKs are: requests wait for their turn instead of failing.

client = httpx2.AsyncClient(transport=SlotTransport(limiter, "anthropic/work-key"))
"""

import httpx2

from paceline.integrations.transports import AsyncSlots, SyncSlots

__all__ = ["SlotTransport", "SyncSlotTransport"]


class SlotTransport(AsyncSlots, httpx2.AsyncBaseTransport):
    """A transport that takes a slot for each request, from a Limiter of this program or from the daemon's Client.

    The slot lasts until the response has ended, failed or was closed. After a refusal that is safe to retry, the
    request waits in the queue again, for up to `max_wait` seconds in total. Then the client gets a 429 in the
    provider's shape. `transport` sends the requests; the default is a plain one.
    """


class SyncSlotTransport(SyncSlots, httpx2.BaseTransport):
    """The same for blocking clients, from any thread except that of the limiter's event loop."""
