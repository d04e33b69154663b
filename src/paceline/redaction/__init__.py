"""Removal of secrets from text: `redactor` for what leaves the machine, `stored_text` for what is stored and shown."""
