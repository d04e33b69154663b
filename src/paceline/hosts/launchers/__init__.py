"""Ways to start the worker of a host, behind one protocol.

`interface.py` has the protocol, `detached_worker.py` the part that runs on the host itself. One module for each way:
`command.py`, `ssh.py`, `slurm.py` (which also runs in the allocation) and `ray_nodes.py` (with `ray_actor.py`, which
needs Ray). Never here: when a worker is started.
"""
