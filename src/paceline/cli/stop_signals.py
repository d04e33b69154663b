"""The signals that ask a long-running command to stop."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator

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
