"""What the engine logs, for a test to look at."""

import logging


class Logged(logging.Handler):
    """What the engine logs."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
