"""Removal of secrets from text."""
