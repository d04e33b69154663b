"""How well the fleet is controlled: our defaults against other policies on identical simulated days.

`provider.py` is the simulated provider, `fleet.py` the agents and the clock, `policies.py`, `limits_by_others.py`,
`governed.py` and `oracle.py` who decides, `scenarios.py` the days, `report.py` the tables and plots.
"""
