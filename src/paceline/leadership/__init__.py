"""Who leads: one engine at a time decides for a home or a fleet.

`election.py` has the locked file of a home, `fleet.py` what the engines of a shared store know of each other, and
`lease.py` the lead of one engine, and until when it trusts it. `host_lease.py` is until when the sessions of a machine
may run without a leader. Never here: what a leader does.
"""
