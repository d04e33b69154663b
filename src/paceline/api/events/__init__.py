"""The event stream: the tail of the store's events, and server-sent events."""
