"""What the Governor decides, as functions over the ledger.

- `admission`: who enters next
- `explanation`: why a ticket waits; `scope_view`: the status of a scope
- `reactions`: what a signal changes (`refusals.py`: what a 429 or a failed contact teaches)
- `slot_outcome`: what the outcome of a slot teaches
- `time_effects`: what time alone does
"""
