"""The gates of a scope: rules that can refuse a ticket whether or not there is room.

`gate.py` is what a gate is, `order.py` their one order, `gate_set.py` those of one scope. Then one module per kind:

- `account_hold`: a person has to act
- `pause`: after a refusal or an overload
- `slow_start`: after a pause, one by one
- `quota_gate`: quota windows (`quota_window.py`, `window_usage.py`, `window_budget.py`)
- `deadline_cap`: no more sessions at once than meet a deadline
- `start_spacing`: starts an interval apart, as refusals taught it
- `header_budget`: what response headers state is left
- `learned_rate`: a rate of requests or tokens, as refusals taught it
- `rate_limit`: a configured rate

`usage_poll.py` is apart: it comes after room, and counts only where somebody waits.
To add a gate: write one module with a subclass of `Gate`, and enter it in `GATE_ORDER`.
"""
