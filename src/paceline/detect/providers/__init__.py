"""What each provider says: one module per provider."""
