"""The writing side of the spool: outputs in bounded files, and a status that is replaced atomically.

Here: the standard library only, because the supervisor imports this. Never here: reading (spool.py).
"""

import os

STATUS = "status.json"
SEGMENT_BYTES = 4 << 20
"""Part of the format: a reader knows by this size that a file is complete."""
LAST_SEGMENTS = 7
"""With the first one, 32 MB for each output: the beginning and the end of a long output are what people need."""

Value = str | int | float | None


class Recording:
    """One output in files of bounded size, named by their first offset. The first and the last few are kept."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.error = ""
        self.received_bytes = 0
        self._size = 0
        self._starts = [0]
        self._fd = _create(name)

    def write(self, data: bytes) -> None:
        """Record output. A full disk must not end the agent: the output is dropped, and the status says so."""
        self.received_bytes += len(data)
        try:
            self._write(data)
        except OSError as error:
            self.error = f"{self.name}: {error.strerror}"

    def close(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as error:
            self.error = f"{self.name}: {error.strerror}"
        os.close(self._fd)

    def _write(self, data: bytes) -> None:
        while data:
            if self._size >= SEGMENT_BYTES:
                self._begin_segment()
            written = os.write(self._fd, data[: SEGMENT_BYTES - self._size])
            self._size += written
            data = data[written:]

    def _begin_segment(self) -> None:
        start = self._starts[-1] + self._size
        fd = _create(f"{self.name}.{start}")
        os.fsync(self._fd)
        os.close(self._fd)
        self._fd, self._size = fd, 0
        self._starts.append(start)
        if len(self._starts) > LAST_SEGMENTS + 1:
            os.unlink(f"{self.name}.{self._starts.pop(1)}")


def write_status(status: dict[str, Value], *, folder: str = ".", sync: bool = True) -> None:
    """Replace the status file atomically."""
    fresh = os.path.join(folder, "status.tmp")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    os.write(fd, (json_of(status) + "\n").encode())
    if sync:
        os.fsync(fd)
    os.close(fd)
    os.rename(fresh, os.path.join(folder, STATUS))
    if sync:
        _sync_folder(folder)


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    os.fsync(fd)
    os.close(fd)


def json_of(status: dict[str, Value]) -> str:
    """Encode a flat object as JSON. Importing the json module would cost more than the rest of this file."""
    return "{" + ", ".join(f'"{key}": {_json_value(value)}' for key, value in status.items()) + "}"


def _json_value(value: Value) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return '"' + "".join(map(_json_character, value)) + '"'
    return repr(value)


def _json_character(char: str) -> str:
    if char in '"\\' or not " " <= char <= "~":
        return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF and not 0xD800 <= ord(char) <= 0xDFFF else "?"
    return char


def _create(name: str) -> int:
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
