"""The process table of the machine: parents, CPU time, and the identity of a pid.

Here: the standard library only, because the supervisor imports this. Never here: starting or ending a process.
"""

import os

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def children_of(pid: int) -> list[int]:
    return [process for process, fields in all_processes() if int(fields[1]) == pid]


def descendants_of(pid: int) -> list[int]:
    """Return all processes below the process, parents before their children."""
    return [process for process, _ in _below(pid)]


def _below(pid: int) -> list[tuple[int, list[bytes]]]:
    children: dict[int, list[tuple[int, list[bytes]]]] = {}
    for process, fields in all_processes():
        children.setdefault(int(fields[1]), []).append((process, fields))
    found = list(children.get(pid, []))
    for process, _ in found:  # it grows while it is read
        found += children.get(process, [])
    return found


def ancestors_of(pid: int) -> list[int]:
    """Return all processes above the process, the nearest first."""
    found: list[int] = []
    while (fields := stat_fields(pid)) and (pid := int(fields[1])) > 0:
        found.append(pid)
    return found


def cpu_of_descendants() -> float:
    """Return the CPU seconds of our live descendants, including those of their reaped children."""
    return sum(int(ticks) for _, fields in _below(os.getpid()) for ticks in fields[11:15]) / CLOCK_TICKS


def all_processes() -> list[tuple[int, list[bytes]]]:
    """Return every process with the fields of its `stat` after the name: state, parent, group, session, ..."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            fields = stat_fields(int(entry))
            if fields:
                found.append((int(entry), fields))
    return found


def stat_fields(pid: int) -> list[bytes]:
    try:
        return contents(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return []


def start_ticks(pid: int) -> int | None:
    """Return the start time in clock ticks since boot. With pid and boot id it identifies one process uniquely."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields else None


def has_ended(pid: int) -> bool:
    """Return whether the process is a zombie: it has ended, and its parent has not reaped it."""
    fields = stat_fields(pid)
    return bool(fields) and fields[0] in (b"Z", b"X") and fields[17] in (b"0", b"1")  # else other threads still run


def boot_id() -> str:
    return contents("/proc/sys/kernel/random/boot_id").decode().strip()


def contents(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()
