"""What the Governor decides, as functions over the ledger.

- `admission`: who enters next
- `explanation`: why a ticket waits, and the status of a scope
- `reactions`: what a signal changes; `outcomes`: what refusals and successes teach
- `time_effects`: what time alone does
"""
