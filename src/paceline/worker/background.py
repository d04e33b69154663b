"""Blocking work beside the loop that the end of the process does not wait for."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def in_daemon_thread(work: Callable[[], Value], name: str) -> "asyncio.Future[Value]":
    """Begin the work in a thread of that name. If it is still at it when the process ends, it is given up."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Value] = loop.create_future()

    def settle(value: Value | None, error: Exception | None) -> None:
        if result.done():
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        value, error = None, None
        try:
            value = work()
        except Exception as raised:  # noqa: BLE001 (it is raised where the work was asked for)
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return result
