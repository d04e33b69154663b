"""One session of an agent.

- `live_session`: what the output of a session means while it runs
- `session_monitor`: reads all sessions and ends those that must stop
- `window_landing`: ends at a turn, on request or before a quota window closes
- `conclusion`: the outcome of an attempt; `unit_results`: what it adds to the result of its unit
"""
