"""What a host has left: memory, disk, load, and the time until its allocation ends."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from paceline.hosts.host_facts import HostLoad

END_VARIABLE = "SLURM_JOB_END_TIME"
"""The variable in which Slurm states when an allocation ends, in Unix seconds."""
_MEMINFO = Path("/proc/meminfo")


def read_load(home: Path, leaves_at: float | None = None) -> HostLoad:
    """Return what the host has left now."""
    free_disk = load = None
    with contextlib.suppress(OSError):
        found = os.statvfs(home)
        free_disk = found.f_bavail * found.f_frsize
    with contextlib.suppress(OSError):
        load = round(os.getloadavg()[0], 2)
    return HostLoad(free_memory=memory("MemAvailable"), free_disk=free_disk, load=load, leaves_at=leaves_at)


def memory(field: str) -> int | None:
    """Return a field of /proc/meminfo in bytes."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    return None


def allocation_end(environ: Mapping[str, str]) -> float | None:
    """Return when the allocation ends that this process runs in, where the environment states it."""
    try:
        return float(environ[END_VARIABLE])
    except (KeyError, ValueError):
        return None
