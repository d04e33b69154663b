"""A plan simulated in virtual time by the engine that would run it."""
