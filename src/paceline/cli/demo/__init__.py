"""`paceline demo`: the engine runs two campaigns of real processes against a fake provider.

`agent.py` is the program that runs, `scenario.py` all the rest. Nothing here decides which session may start: the
engine does, as in any other home.
"""
