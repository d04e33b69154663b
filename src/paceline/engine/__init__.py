"""The engine: from a plan file to finished units."""
