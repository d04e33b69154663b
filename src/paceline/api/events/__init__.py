"""Events over HTTP: the tail of the store's events, and server-sent events (SSE)."""
