"""Processes left behind by a session whose supervisor is dead: how to find and kill them.

Here: the proof that a process belongs to that session. Never here: sessions whose supervisor lives; it ends them
itself.

The kernel kills the agent together with its supervisor, but not the agent's children. A process belongs to the session
if it carries the session's mark, which every process of the session inherits in its environment. The process group of
the agent is no proof by itself: once the agent is gone, another group can get its number. It is
proof as long as the agent itself, or a process with the mark, is in that group, because the kernel does not
reuse a number while its group exists.
"""

import os
import select
import signal

from paceline.executors.proc_table import all_processes, boot_id, contents, start_ticks
from paceline.executors.spool import SessionStatus

MARK_VARIABLE = "PACELINE_SPOOL"
"""Names the attempt's folder in the environment of every process of its session."""
_DEATH_SECONDS = 2.0
"""How long to wait for a killed process to be gone; one in uninterruptible sleep is not waited for longer."""


def kill_leftovers(folder: str, status: SessionStatus | None) -> tuple[int, ...]:
    """Kill leftovers of the session until none is found. Return their pids."""
    killed: dict[int, None] = {}
    while found := [pid for pid in find_leftovers(folder, status) if pid not in killed]:
        for pid, ticks in ((pid, start_ticks(pid)) for pid in found):
            killed[pid] = None
            if ticks is not None:
                _kill_one(pid, ticks)
    return tuple(killed)


def find_leftovers(folder: str, status: SessionStatus | None) -> list[int]:
    """Return the pids that provably belong to the session of this folder."""
    if status is not None and status.boot_id != boot_id():
        return []
    mark = os.fsencode(f"{MARK_VARIABLE}={folder}")
    living = {pid: fields for pid, fields in all_processes() if fields[0] not in (b"Z", b"X")}
    marked = {pid for pid in living if mark in _environment(pid)}
    group = {pid for pid, fields in living.items() if _is_in_group(fields, status)}
    if not marked & group and not _is_agent_there(status):
        group = set()
    return [pid for pid in living if pid in marked or pid in group]


def _is_in_group(fields: list[bytes], status: SessionStatus | None) -> bool:
    """Return whether the process is in the group or session with the agent's number, and not older than the agent."""
    if status is None or status.pid is None or status.ticks is None:
        return False
    return str(status.pid).encode() in fields[2:4] and int(fields[19]) >= status.ticks


def _is_agent_there(status: SessionStatus | None) -> bool:
    """Return whether the agent's pid still means the agent: it may be about to die, or a zombie."""
    if status is None or status.pid is None or status.ticks is None:
        return False
    return start_ticks(status.pid) == status.ticks


def _environment(pid: int) -> list[bytes]:
    try:
        return contents(f"/proc/{pid}/environ").split(b"\0")
    except OSError:
        return []


def _kill_one(pid: int, ticks: int) -> None:
    """Kill through a pidfd, so that it cannot hit a process that got the same number meanwhile."""
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
    """Send KILL and wait a moment for the process to end."""
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    poller.poll(_DEATH_SECONDS * 1000)
