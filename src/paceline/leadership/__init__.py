"""Who leads: one engine at a time decides for a home or a fleet.

`election` decides it; `host_lease` is until when the sessions of a machine may run without a leader. Never here: what a
leader does.
"""
