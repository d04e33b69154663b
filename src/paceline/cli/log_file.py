"""Warnings of the engine and the server: all in a log file, the last one for the screen."""

import contextlib
import logging
import logging.handlers
from collections.abc import Iterator
from zoneinfo import ZoneInfo

from paceline.cli.time_text import clock_time
from paceline.cli.wiring import Home

LOG_FILE = "paceline.log"
LOGGERS = ("paceline", "uvicorn", "asyncio")
LOG_BYTES = 1 << 20
"""The file is rotated at this size: weeks of warnings, and never a full disk."""


class LastWarning(logging.Handler):
    """The last warning, for the screen. The log file has all of them."""

    def __init__(self, zone: ZoneInfo) -> None:
        super().__init__(logging.WARNING)
        self._zone = zone
        self.text: str | None = None

    def emit(self, record: logging.LogRecord) -> None:
        error = f": {record.exc_info[1]}" if record.exc_info and record.exc_info[1] else ""
        self.text = f"{clock_time(record.created, self._zone)} {record.getMessage()}{error}"


@contextlib.contextmanager
def log_to_file(home: Home) -> Iterator[LastWarning]:
    """Send log records to the file of the home instead of the terminal, for as long as the context lasts."""
    warning = LastWarning(home.zone)
    file = logging.handlers.RotatingFileHandler(home.path / LOG_FILE, maxBytes=LOG_BYTES, backupCount=2, delay=True)
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    loggers = [logging.getLogger(name) for name in LOGGERS]
    propagated = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(warning)
        logger.addHandler(file)
        logger.propagate = False
    try:
        yield warning
    finally:
        for logger, did_propagate in zip(loggers, propagated, strict=True):
            logger.propagate = did_propagate
            logger.removeHandler(warning)
            logger.removeHandler(file)
        warning.close()
        file.close()
