"""Limits that a scope learns from refusals: how many places it has.

- `adaptive_limit`: how many at once
- `release_lag`: how long a released slot still counts at the provider
- `platform_limit`: a limit that the provider named
- `incident`: which refusals belong together
"""
