"""Slots for programs that the engine did not start."""
