"""Finding and killing what is left of a session whose supervisor is dead.

Here: which processes are surely of that session. Never here: sessions whose supervisor lives; it ends them itself.

The agent itself dies with its supervisor (the kernel sees to it); its children may not. They are known by the
mark that every process of the session has inherited in its environment, or by the agent's process group, if that
number still means the agent: same boot, and no process with the agent's pid and another start time.
"""

import os
import select
import signal

from paceline.executors.proc_table import all_processes, boot_id, contents, start_ticks
from paceline.executors.spool import Status

MARK_VARIABLE = "PACELINE_SPOOL"
"""Names the attempt's folder in the environment of all that run in it."""
_DEATH_SECONDS = 2.0


def kill_leftovers(folder: str, status: Status | None) -> tuple[int, ...]:
    """Kills what is left of the session, until a look finds nothing more; the pids."""
    killed: dict[int, None] = {}
    while found := [pid for pid in find_leftovers(folder, status) if pid not in killed]:
        for pid, ticks in ((pid, start_ticks(pid)) for pid in found):
            killed[pid] = None
            if ticks is not None:
                _kill_one(pid, ticks)
    return tuple(killed)


def find_leftovers(folder: str, status: Status | None) -> list[int]:
    """The processes that are surely of this session."""
    if status is not None and status.boot_id != boot_id():
        return []
    mark = os.fsencode(f"{MARK_VARIABLE}={folder}")
    everybody = [(pid, fields) for pid, fields in all_processes() if fields[0] not in (b"Z", b"X")]
    group = _group_of_agent(status)
    return [pid for pid, fields in everybody if _in_group(fields, group, status) or mark in _environment(pid)]


def _group_of_agent(status: Status | None) -> bytes | None:
    """The number of the agent's group and session, unless it has come to mean somebody else's."""
    if status is None or status.pid is None:
        return None
    ticks = start_ticks(status.pid)
    return str(status.pid).encode() if ticks in (None, status.ticks) else None


def _in_group(fields: list[bytes], group: bytes | None, status: Status | None) -> bool:
    if group is None or status is None or status.ticks is None:
        return False
    return group in fields[2:4] and int(fields[19]) >= status.ticks


def _environment(pid: int) -> list[bytes]:
    try:
        return contents(f"/proc/{pid}/environ").split(b"\0")
    except OSError:
        return []


def _kill_one(pid: int, ticks: int) -> None:
    """Through a pidfd, so that it cannot hit a process that has taken over the number meanwhile."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if start_ticks(pid) == ticks:
            kill_and_wait(pidfd)
    except ProcessLookupError:
        return
    finally:
        os.close(pidfd)


def kill_and_wait(pidfd: int) -> None:
    """KILL, and a moment for it to take effect."""
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    poller.poll(_DEATH_SECONDS * 1000)
