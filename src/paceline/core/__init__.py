"""PURE: who may enter, in which order, how many, until when. No clock, no I/O, no asyncio."""
