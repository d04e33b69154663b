"""The worker: the process that runs sessions on another host, for the engine that leads.

It starts what it is ordered to, under the same supervisors and in the same kind of spool as an engine. It reads the
output there, and sends signals and facts. Never here: a decision about a unit.

`worker.py` is the worker, the program around it, and what the host is and has. `sessions.py` starts, reads and ends
sessions, and has the reports about them. `link.py` has its requests. `job_runner.py` does calls of the leader, in the
repositories of the host.
"""
