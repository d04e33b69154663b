"""Errors of single sessions: each is logged once and tried again after growing waits, while the others continue."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Literal

import msgspec

log = logging.getLogger("paceline.engine")

RETRY_SECONDS = (1.0, 2.0, 5.0, 15.0, 60.0)
"""Waits after the first, second, ... error: an error that passes costs seconds, one that stays costs no processor."""

SessionStep = Literal["examine", "read", "stop", "conclude", "archive"]
"""What the engine does with a session that may fail for this one alone."""


class Fault(msgspec.Struct, frozen=True):
    """The errors in a row of one step, and when it is tried again."""

    count: int
    retry_at: float
    error: str


class SessionFaults:
    """The errors of live sessions, by step. A step that worked has none, so its next error is logged again."""

    def __init__(self) -> None:
        self._faults: dict[tuple[str, SessionStep], Fault] = {}

    def of(self, attempt_id: str, step: SessionStep) -> Fault | None:
        """Return the errors of the step since it worked last."""
        return self._faults.get((attempt_id, step))

    def may_try(self, attempt_id: str, step: SessionStep, now: float) -> bool:
        """Return whether the step has no error, or its wait is over. A clock that is set back makes no wait longer."""
        fault = self.of(attempt_id, step)
        return fault is None or not 0 < fault.retry_at - now <= RETRY_SECONDS[-1]

    @contextlib.contextmanager
    def isolated(self, attempt_id: str, step: SessionStep, now: float) -> Iterator[None]:
        """Keep an error of the block to this session: note it instead of raising it."""
        try:
            yield
        except Exception as error:
            before = self.of(attempt_id, step)
            count = 1 if before is None else before.count + 1
            if before is None:
                log.exception("cannot %s session %s; it is tried again, and the others continue", step, attempt_id)
            wait = RETRY_SECONDS[min(count, len(RETRY_SECONDS)) - 1]
            self._faults[attempt_id, step] = Fault(count, now + wait, f"{type(error).__name__}: {error}")
        else:
            self._faults.pop((attempt_id, step), None)

    def forget(self, attempt_id: str) -> None:
        """Drop the errors of a session that is over."""
        for key in [key for key in self._faults if key[0] == attempt_id]:
            del self._faults[key]
