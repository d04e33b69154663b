"""One session of an agent, and the work of its unit around it.

- `live_session`: what the output of a session means while it runs, its outcome, and what that adds to its unit
- `session_monitor`: reads all sessions, ends those that must stop, and records how attempts ended
- `window_landing`: ends at a turn, on request or before a quota window closes
- `unit_stages`: the workspace before the session; check, commit, delivery and removal after it
"""
