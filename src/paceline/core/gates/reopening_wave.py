"""When tickets go after a reset: the canary a moment later, and then a wave.

In the wave the n-th follower starts about a second / n after the one before.
"""

import zlib

WAVE_SECONDS = 1.0
"""The first gap of a wave: time enough for a refusal to stop it."""
WAVE_OVER_SECONDS = 0.02
"""A gap below this makes no difference: after 50 starts the wave is over."""
LULL_SECONDS = 60.0
"""If no waiter took its turn for this long, no crowd is left to hold back."""

AFTER_RESET_SECONDS = (1.0, 3.0)
"""How long after a believed reset the canary goes. Resets are stated in whole seconds: one in that very second is
refused, and the refusal costs more than these seconds."""


def first_look(resets_at: float) -> float:
    """Return when the canary of a window goes that is believed to reset then. It follows from the reset alone."""
    least, most = AFTER_RESET_SECONDS
    return resets_at + least + (most - least) * jitter(f"{resets_at!r}", "reset")


def gap_after(started: int, ticket_id: str, window: str) -> float:
    """Return the gap after the n-th start, varied by up to a half."""
    return WAVE_SECONDS / started * (0.5 + jitter(ticket_id, window))


def is_wave_over(started: int) -> bool:
    """Return whether so many have started that the next gap makes no difference."""
    return WAVE_SECONDS / started < WAVE_OVER_SECONDS


def jitter(ticket_id: str, window: str) -> float:
    """Return a number from 0 to 1 that follows from the names, so that the core needs no randomness."""
    return zlib.crc32(f"{ticket_id}|{window}".encode()) / 0xFFFFFFFF
