"""The gates of a scope: rules that can refuse a ticket whether or not there is room.

`gate.py` defines a gate, `order.py` the one order of all kinds, `gate_set.py` holds those of one scope. The kinds:

- `account_hold`: a person has to act
- `login_doubt`: a login was refused, and is asked again
- `outage`: nobody answers
- `pause`: after a refusal or an overload
- `slow_start`: after a pause, one by one
- `quota_gate`: quota windows (`quota_window.py`, `window_usage.py`, `window_budget.py`)
- `deadline_cap`: no more sessions at once than meet a deadline
- `start_spacing`: starts an interval apart, as refusals taught it
- `header_budget`: what response headers state is left
- `learned_rate`: a rate of requests or tokens, as refusals taught it
- `rate_limit`: a configured rate

`canary_gate.py` is what gates share that let one ticket ask again.
`usage_poll.py` is not a gate of the order: it comes after room, and counts only while a ticket waits.
To add a gate: write one module with a subclass of `Gate`, and enter it in `GATE_ORDER`.
"""
