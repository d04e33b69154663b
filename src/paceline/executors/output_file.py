"""The file that a plan expects a unit to write."""

import os

CLOCK_SLACK_SECONDS = 2.0
"""How much older than the start of its attempt an output may be: file systems round times, some to two seconds."""


def output_problem(cwd: str, output: str | None, since: float) -> str | None:
    """Return what is wrong with an output that should have been written since that time; None if nothing is."""
    if output is None:
        return None
    try:
        written = os.stat(os.path.join(cwd, output))
    except OSError:
        return f"{output} was not written"
    if not written.st_size:
        return f"{output} is empty"
    # Files that were moved or copied with their times have only the time of their last change of state.
    if max(written.st_mtime, written.st_ctime) < since - CLOCK_SLACK_SECONDS:
        return f"{output} is older than this attempt"
    return None
