"""A unit's work around its session.

- `workspace_preparation`: the folder before the session; `work_verifier`: check, commit and delivery after it, all
  units that are in one of these, and the removal of folders at the end
- `stage_commands`: the commands of a plan that run there
- `attempt_outcome`: what is stored of an attempt that is over
- `retention`: how long workspaces, output and events are kept
"""
