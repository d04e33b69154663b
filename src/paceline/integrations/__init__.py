"""Paceline inside other people's programs: one line puts its gate under a client they use already.

    httpx     `SlotTransport` for programs and SDKs built on httpx
    httpx2    the same for those built on httpx2, as the official SDKs are now

What a request or an answer means is told by `paceline.protocols`, as for the gateway.
"""
