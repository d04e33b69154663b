"""Limits that a scope learns from refusals: how many places it has."""
