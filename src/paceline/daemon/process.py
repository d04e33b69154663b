"""What every process that runs long has: signals that ask it to stop, and warnings in a log file."""

import asyncio
import contextlib
import logging
import logging.handlers
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from zoneinfo import ZoneInfo

from paceline.daemon.home import Home
from paceline.daemon.times import clock_time
from paceline.errors import PacelineError
from paceline.redaction import without_secrets

# -- stop signals -------------------------------------------------------------------------------------

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def on_stop_signals(handler: Callable[[signal.Signals], object]) -> Iterator[None]:
    """Call `handler` on the running loop for each stop signal. Ignored ones stay ignored: `nohup` ignores SIGHUP."""
    loop = asyncio.get_running_loop()
    handled = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in handled:
        loop.add_signal_handler(number, handler, number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


# -- the log file -------------------------------------------------------------------------------------

LOG_FILE = "paceline.log"
LOGGERS = ("paceline", "uvicorn", "asyncio")
LOG_BYTES = 1 << 20
"""The file is rotated at this size: weeks of warnings, and never a full disk."""
REPEAT_SECONDS = 600.0
"""After this time a warning that still repeats is shown again, with the present time."""
SHOWN_WARNINGS = 3
"""One fault causes up to this many: of the engine, of a listener, and of what was under way."""


class LastWarnings(logging.Handler):
    """The last warnings, for the screen. The log file has all of them."""

    def __init__(self, zone: ZoneInfo) -> None:
        super().__init__(logging.WARNING)
        self._zone = zone
        self._message = ""
        self._shown_at = 0.0
        self.texts: deque[str] = deque(maxlen=SHOWN_WARNINGS)

    def emit(self, record: logging.LogRecord) -> None:
        """Take the warning, unless it repeats the one that is shown: each pass of an engine may fail alike."""
        error = f": {record.exc_info[1]}" if record.exc_info and record.exc_info[1] else ""
        message = without_secrets(f"{record.getMessage()}{error}")
        if message == self._message and 0 <= record.created - self._shown_at < REPEAT_SECONDS:
            return
        self._message, self._shown_at = message, record.created
        self.texts.append(f"{clock_time(record.created, self._zone)} {message}")


class LineFormatter(logging.Formatter):
    """One line for an error that Paceline raised on purpose, and a traceback for all others. No secrets."""

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))

    def formatException(  # noqa: N802 (the name is the base class's)
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        return f"  {ei[1]}" if isinstance(ei[1], PacelineError) else super().formatException(ei)


class LogFile(logging.handlers.RotatingFileHandler):
    """The log file. It omits repeated records, and it reports once that it cannot be written.

    A fault such as a full disk fails every pass of the engine. One record of it is enough, and a handler that fails
    must not print a traceback for each of them, as `logging` does by itself.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=LOG_BYTES, backupCount=2, delay=True)
        self.setFormatter(LineFormatter("%(asctime)s %(levelname)s %(message)s"))
        self._last = ""
        self._repeats = 0
        self._is_failing = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, unless it repeats the one before."""
        text = f"{record.levelname} {record.getMessage()} {record.exc_info[1] if record.exc_info else ''}"
        if text == self._last:
            self._repeats += 1
            return
        repeats, self._repeats, self._last = self._repeats, 0, text
        if repeats:
            times = "once" if repeats == 1 else f"{repeats} times"
            note = {"msg": f"the record before was repeated {times}", "args": None, "exc_info": None, "exc_text": None}
            super().emit(logging.makeLogRecord({**record.__dict__, **note}))
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (the name is the base class's)
        """Report the first failure to write, on the terminal."""
        self._last = ""  # it is not in the file, so the next one like it is no repetition
        if not self._is_failing:
            self._is_failing = True
            error = sys.exc_info()[1]
            reason = error.strerror if isinstance(error, OSError) else error
            with contextlib.suppress(OSError):
                sys.stderr.write(f"paceline: cannot write {self.baseFilename}: {reason}; log records are dropped\n")

    def close(self) -> None:
        """Close the file. A record that a full disk has not taken is dropped, as was reported."""
        with contextlib.suppress(OSError):
            super().close()


@contextlib.contextmanager
def handled_by(*handlers: logging.Handler) -> Iterator[None]:
    """Send log records to these handlers alone, for as long as the context lasts."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    propagated = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.propagate = False
        for handler in handlers:
            logger.addHandler(handler)
    try:
        yield
    finally:
        for logger, did_propagate in zip(loggers, propagated, strict=True):
            logger.propagate = did_propagate
            for handler in handlers:
                logger.removeHandler(handler)
        for handler in handlers:
            handler.close()


@contextlib.contextmanager
def log_to_file(home: Home) -> Iterator[LastWarnings]:
    """Send log records to the file of the home instead of the terminal, for as long as the context lasts."""
    warnings = LastWarnings(home.zone)
    with handled_by(warnings, LogFile(home.path / LOG_FILE)):
        if home.lost_work is not None:
            logging.getLogger(LOGGERS[0]).warning("%s", home.lost_work)
        yield warnings
