"""The engine: it runs campaigns over a store and executors, and leads a home.

- `engine`: one loop, one heartbeat, the lead, and the steps of a pass, in their order
- `commands`: what people order, checked and stored; `command_log`: how the leader reads it
- `journal`: events, the Governor and the reasons to wait, as they are stored
- `settings`: its part of the configuration; `store_outage`: while the store does not answer
- `dispatch/`: which unit starts next, and on which login and host
- `session/`: a session from its launch to its end, and the work of its unit around it
- `retention`: how long workspaces, output and events are kept
- `capacity/`: the Governor's state, leases of other programs, and the rules of campaigns and accounts
"""
