"""Removal of secrets from text: `redactor` does it, `secret_shapes` has the patterns."""
