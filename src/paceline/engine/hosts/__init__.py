"""The machines that sessions run on: the leader's own, and those of workers.

`host.py` is what the engine needs of a machine, `remote_host.py` one with a worker, `registry.py` all of them. Never
here: which unit runs where (`engine/placement.py`).
"""
