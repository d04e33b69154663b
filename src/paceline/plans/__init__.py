"""Plan files: reading them, checking them against this machine, and importing them into the store."""
