"""A unit's work around its session.

- `unit_stages`: its workspace before the session; check, commit, delivery and removal after it
- `retention`: how long workspaces, output and events are kept
"""
