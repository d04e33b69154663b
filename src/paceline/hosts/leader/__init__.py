"""The hosts of a leading engine.

`host.py` is what the engine needs of a machine: the leader's own, and one with a worker. `registry.py` has all of them,
and answers their workers. `worker_supervision.py` starts workers and holds their tunnels open. `workspace_cleanup.py`
removes workspaces that nobody needs.
"""
