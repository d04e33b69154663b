"""The gates of a scope: rules that can refuse a ticket whether or not there is room.

`gate.py` defines a gate, `order.py` the one order of all kinds, and the gates of one scope. The kinds:

- `closures`: closed until a time, an answer or a person says otherwise (hold, login doubt, outage, pause)
- `start_meters`: how many may start by when (slow start, first ramp, spacing, deadline cap, landing hold)
- `rates`: requests and tokens per minute, set or learnt from refusals
- `header_budget`: what response headers state is left
- `quota_window`: quota windows (`reopening.py`: when one is probed, `window_usage.py`: what it holds)

`usage_poll.py` is not a gate of the order: it comes after room, and counts only while a ticket waits.
To add a gate: write a subclass of `Gate` beside its kin, and enter it in `GATE_ORDER`.
"""
