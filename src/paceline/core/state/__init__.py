"""The Governor's state as one object, the ledger, and its snapshot.

- `ledger`: slots, waiters, effects, what is due when, and the arithmetic of places; composed of
- `tables`: what is set, scopes by name (`scope.py`, `usage_meter.py`), and lanes by their tickets (`lane.py`:
  lane, waiter, live slot, and who watches which scope)
- `fairness`: groups and their shares
- `snapshot`: all of it as a value, and back
"""
