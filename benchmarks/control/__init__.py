"""The quality of control over a fleet: our defaults against other policies on identical simulated days.

`provider.py` is the simulated provider, `fleet.py` the agents and the clock, `policies.py`, `published_limits.py`,
`governed.py` and `oracle.py` the policies, `scenarios.py` the days, `report.py` the tables and plots.
"""
