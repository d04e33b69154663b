"""The garbage collector of a process that runs an engine."""

import gc

YOUNG_OBJECTS = 10_000
"""New objects between two collections. A session makes dozens that live until it ends: with Python's 700, a fifth of a
busy engine's time went into checking them. A collection of so many still takes less than a millisecond."""


def collect_seldom() -> None:
    """Leave all objects of the start out of later collections, and collect less often. Call it once, when it is over.

    A full collection over those objects would block the loop for 0.1 s.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
