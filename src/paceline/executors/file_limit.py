"""The limit of open files of this process, compared with the sessions that it is to run."""

import contextlib
import resource

FILES_PER_SESSION = 2
"""The engine keeps one file open for a session, and a few more for a moment while it starts one."""
OTHER_FILES = 512
"""The database, the log, and connections of clients."""


def raise_file_limit(sessions: int) -> str | None:
    """Raise the soft limit of open files as far as needed and allowed. Return a warning if that is not enough.

    It is not raised further: sessions inherit it, and some programs close every file up to the limit one by one.
    """
    needed = sessions * FILES_PER_SESSION + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < highest:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
            soft = highest
    if soft == resource.RLIM_INFINITY or soft >= sessions + OTHER_FILES // 8:
        return None
    return (
        f"this process may open {soft} files, which is not enough for a pool of {sessions} sessions;"
        " raise the limit (ulimit -n), or lower the pool"
    )
