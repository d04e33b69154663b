"""`paceline demo`: the engine runs two campaigns of real processes against a fake provider, and shows it live.

`scenario.py` sets everything up, `agent.py` is the program that runs, `progress.py` what is known about it. `show.py`,
`view.py`, `summary.py` and `dashboard.py` show it. Nothing here decides which session may start: the engine does, as in
any other home.
"""
