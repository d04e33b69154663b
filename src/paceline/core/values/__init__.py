"""Values of the core: names, tickets, verdicts, settings, and their validation. Nothing here changes or decides."""
