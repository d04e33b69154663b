"""A program in place of `paceline worker`: it notes how it was started, starts one session, and waits for its end.

    python stand_in_worker.py --connect URL --name NAME --token-file FILE

It stands for the worker in tests of launchers, which need no leader. Never here: how it is started.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

NOTES_FOLDER: Final = "stand-in"
"""The folder in the worker's home with one note for each process that was started."""
SESSION: Final = (sys.executable, "-c", "import time; time.sleep(600)")


def main(arguments: list[str]) -> int:
    """Write the note, and wait for SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--connect", action="append", default=[])
    parser.add_argument("--name")
    parser.add_argument("--token-file", type=Path)
    given, _ = parser.parse_known_args(arguments)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    session = subprocess.Popen(SESSION, start_new_session=True, stdin=subprocess.DEVNULL, preexec_fn=_unblock)
    folder = Path(os.environ["PACELINE_HOME"]) / NOTES_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    note = {
        "pid": os.getpid(),
        "session": session.pid,
        "name": given.name,
        "connect": given.connect,
        "token": given.token_file.read_text().strip(),
    }
    fresh = folder / f".{os.getpid()}"
    fresh.touch(mode=0o600)
    fresh.write_text(json.dumps(note))
    fresh.rename(folder / f"{os.getpid()}.json")
    signal.sigwait({signal.SIGTERM})
    return 0


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
