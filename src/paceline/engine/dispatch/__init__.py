"""Which unit starts next.

- `ticket_queues`: a few waiting tickets per campaign and login, and their order
- `placement`: which logins on which hosts a campaign may use, and how long units wait for a host that is away
- `dispatcher`: claims a unit for each granted ticket and launches it, and finds the sessions of an engine before
"""
