"""Limits that a scope learns from refusals: how many places it has.

- `adaptive_limit`: how many at once
- `release_lag`: how long a released slot still counts at the provider
- `platform_limit`: a limit that the provider named
- `start_bursts`: how many sessions have started well in a short time
- `incident`: which refusals belong together
"""
