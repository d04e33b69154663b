"""Other machines: hosts, on which workers run sessions for the engine that leads.

`messages.py` has what is known of a host, and what the leader and a worker exchange. `jobs.py` has blocking work
besides sessions, on the leader's machine and on hosts. The rest is in three packages:

`leader/`: the hosts of a leading engine, and how their workers are kept alive.
`worker/`: the process on a host that runs its sessions.
`launchers/`: the ways to start a worker.

Never here: which unit runs where (`engine/dispatch/placement.py`).
"""
