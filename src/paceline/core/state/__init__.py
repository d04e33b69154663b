"""The Governor's state: the ledger, its scopes, slots, queues and groups, and their snapshot."""
