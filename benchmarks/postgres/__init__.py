"""The speed of the PostgreSQL store. `python -m benchmarks.postgres` runs it."""
