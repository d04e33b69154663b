"""The daemon, and the home that it and every command work on: the composition root.

`home.py` opens the home that the environment names, with its store; `engines.py` builds its engine: only these two
pick implementations. `daemon.py` runs and serves `paceline up`, alone or in a fleet.
`slot_engine.py` is the engine that an `exec` starts where none leads, `worker_process.py` a worker. `contact.py` is how
other processes and hosts reach a daemon, and what it answers. `process.py` and `times.py` serve every process that runs
long.
"""
