"""The engines that `paceline exec` starts: finding those of a test, and ending them."""

import contextlib
import os
import signal
from pathlib import Path


def slot_engines(folder: Path) -> list[int]:
    """Return the processes of engines for slots whose home is below the folder."""
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit() and _is_one(each, folder)]


def _is_one(process: Path, folder: Path) -> bool:
    try:
        return (
            b"paceline.daemon.slot_engine" in (process / "cmdline").read_bytes()
            and f"PACELINE_HOME={folder}/".encode() in (process / "environ").read_bytes()
        )
    except OSError:  # it has ended, or is another user's
        return False


def end_slot_engines(folder: Path) -> None:
    for pid in slot_engines(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
