"""Paceline inside other programs: one line makes the requests of an existing client wait for slots.

    httpx     `SlotTransport` for programs and SDKs built on httpx
    httpx2    the same for those built on httpx2, as the official SDKs are now

What a request or a response means is decided by `paceline.protocols`, as for the gateway.
"""
