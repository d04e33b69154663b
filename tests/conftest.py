"""Where the tests keep their files: in memory, where that has room and runs programs.

Every stored transition is synced to the disk, and the tests store many thousands. What is tested of that is what a
killed process leaves behind, which is the same in both places. PYTEST_DEBUG_TEMPROOT names another place.
"""

import os

import pytest

MEMORY = "/dev/shm"
NEEDED_BYTES = 2 << 30


def pytest_configure(config: pytest.Config) -> None:
    if _has_room_for_programs(MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)


def _has_room_for_programs(folder: str) -> bool:
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize >= NEEDED_BYTES and not found.f_flag & os.ST_NOEXEC
