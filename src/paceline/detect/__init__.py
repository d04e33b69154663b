"""PURE: observation -> signals. No clock, no I/O, no asyncio."""
