"""Ways to start the worker of a host, behind one protocol.

`interface.py` has the protocol, `detached.py` the part that runs on the host itself. One module for each way:
`command.py` and `ssh.py` (with `ssh_connection.py`, `ssh_install.py` and `ssh_tunnel.py`). Never here: when a worker
is started.
"""
