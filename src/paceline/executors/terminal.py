"""Sessions in a terminal, for agents that have no headless mode.

Here: what a terminal adds to a supervised process: a size, a screen and a keyboard. The supervisor owns the terminal,
so it survives the engine as the agent does. Never here: the meaning of the screen's content.
"""

import contextlib
import errno
import os

from paceline.agents.stream.screen import COLUMNS, ROWS, BoundedScreen
from paceline.core.values.channels import Channel
from paceline.executors.interface import Launch, SessionState
from paceline.executors.process import ProcessExecutor, ProcessHandle
from paceline.executors.spool import OutputReader, read_session_status

LAST_SCREEN = "screen.txt"
TERMINAL_MARK = "terminal"
_KEYS_BYTES = 512
"""A write of this size to a pipe is atomic on every POSIX system."""


class TerminalHandle(ProcessHandle):
    """One session in a terminal. `read_new("screen")` returns the raw bytes; `screen` renders them."""

    channels: tuple[Channel, ...] = ("screen",)

    def __init__(self, attempt_id: str, folder: str, child_pid: int | None = None) -> None:
        super().__init__(attempt_id, folder, child_pid)
        self._renderer: BoundedScreen | None = None
        self._unrendered = OutputReader(folder, "screen")

    def screen(self) -> list[str]:
        """Return the rows of the screen. Rendering starts with the first call."""
        if self._renderer is None:
            self._renderer = BoundedScreen(*_size(self.folder))
        while piece := self._unrendered.read():
            self._renderer.feed(piece)
        return self._renderer.display()

    def send_keys(self, keys: str) -> bool:
        """Type into the terminal. Return False if its session has ended or does not read."""
        try:
            fd = os.open(os.path.join(self.folder, "keys"), os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.ENXIO, errno.ENOENT):
                return False
            raise
        data = keys.encode("utf-8", "replace")
        try:
            for start in range(0, len(data), _KEYS_BYTES):
                os.write(fd, data[start : start + _KEYS_BYTES])
        except (BlockingIOError, BrokenPipeError):
            return False
        finally:
            os.close(fd)
        return True

    def _conclude(self) -> SessionState:
        """Save the last screen as text beside the recording."""
        state = super()._conclude()
        text = "\n".join(self.screen()).rstrip() + "\n"
        with contextlib.suppress(OSError), open(os.path.join(self.folder, LAST_SCREEN), "w", encoding="utf-8") as file:
            file.write(text)
        return state


class TerminalExecutor(ProcessExecutor):
    """An executor for plain processes, and for terminals of one size (`Launch.terminal`)."""

    def __init__(
        self, spool_root: str, *, lease_file: str | None = None, rows: int = ROWS, columns: int = COLUMNS
    ) -> None:
        super().__init__(spool_root, lease_file=lease_file)
        self._rows, self._columns = rows, columns

    def options(self, launch: Launch, folder: str) -> list[str]:
        """Add the size for a session in a terminal: a supervisor with a size creates one."""
        plain = super().options(launch, folder)
        if not launch.terminal:
            return plain
        with open(os.path.join(folder, TERMINAL_MARK), "w"):
            pass  # before the supervisor starts, so that any engine that adopts the session knows its type
        return [f"rows={self._rows}", f"columns={self._columns}", *plain]

    def handle_type(self, folder: str) -> type[ProcessHandle]:
        return TerminalHandle if os.path.exists(os.path.join(folder, TERMINAL_MARK)) else ProcessHandle


def _size(folder: str) -> tuple[int, int]:
    """Return columns and rows as the supervisor recorded them: an engine that adopts the session does not know them."""
    status = read_session_status(folder)
    return (COLUMNS, ROWS) if status is None else (status.columns or COLUMNS, status.rows or ROWS)
