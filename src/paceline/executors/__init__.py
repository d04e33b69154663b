"""How a session is run: one interface, several ways."""
