"""Paceline: runs a fleet of AI agents flat out on the capacity you pay for."""
