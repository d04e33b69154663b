"""What the Governor decides: who enters, what a signal changes, what time brings, and why a ticket waits."""
