"""A unit's work around its session.

- `workspace_preparation`: the folder before the session; `work_verifier`: check, commit and delivery after it
- `stage_commands`: the plan's own commands as sessions; `unit_stages`: all work around a session, for one unit
- `attempt_outcome`: what is stored of an attempt that is over
- `retention`: how long workspaces, output and events are kept
"""
