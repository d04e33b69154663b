"""Files that only their owner can read, such as one with a token."""

import os
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Write the file whole or not at all. Nobody else can read it at any moment."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(text)
    fresh.replace(path)
