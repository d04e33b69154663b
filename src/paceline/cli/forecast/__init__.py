"""`forecast`: the plan played through in virtual time by the engine that would run it."""
