"""The Governor's state as one object, the ledger, and its snapshot.

- `ledger`: slots, waiters, effects, and the arithmetic of places; composed of
- `scope_table`: scopes by name (`scope.py`, `usage_meter.py`, `limit_table.py`)
- `lane_table`: lanes by their tickets (`lane.py`: lane, waiter, live slot)
- `queue`: which lane watches which scope
- `fairness`: groups and their shares
- `timers`: what is due when
- `snapshot`: all of it as a value (`restoration.py`: and back)
"""
