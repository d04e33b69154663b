"""Plan files: read, checked and imported."""
