"""Other machines: what the leading engine and a worker say to each other, and how workers are started.

`messages.py` has the values on the wire, `session_order.py` a session that any machine can start, `host_jobs.py` the
work that a worker does besides sessions (its own side is `job_runner.py`, its copies of repositories are
`host_repositories.py`), `launchers/` the ways to start a worker. Never here: which unit runs where
(`engine/placement.py`).
"""
