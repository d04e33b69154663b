"""The quality of control over a fleet: our defaults against other policies on identical simulated days.

`families.py` has the kinds of providers, made of parts: `counts.py`, `replicas.py`, `penalties.py`, `allowances.py`,
`levels.py`, put together in `provider.py`. `answers.py` is all that a policy may see of them. `fleet.py` has the agents
and the clock, `policies.py`, `published_limits.py`, `governed.py` and `oracle.py` the policies, `scenarios.py` the
days, `report.py` the tables and plots.
"""
