"""Errors of single sessions: each is logged once and tried again after growing waits, while the others continue."""

import logging
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
        fault = (
            self.of(attempt_id, step) if self._faults else None
        )  # the usual case, several times per session and pass
        return fault is None or not 0 < fault.retry_at - now <= RETRY_SECONDS[-1]

    def isolated(self, attempt_id: str, step: SessionStep, now: float) -> "_Isolation":
        """Keep an error of the block to this session: note it instead of raising it."""
        return _Isolation(self, attempt_id, step, now)

    def note_error(self, attempt_id: str, step: SessionStep, error: Exception, now: float) -> None:
        """Count an error of the step. The first one in a row is logged."""
        before = self.of(attempt_id, step)
        count = 1 if before is None else before.count + 1
        if before is None:
            message = "cannot %s session %s; it is tried again, and the others continue"
            log.error(message, step, attempt_id, exc_info=error)
        wait = RETRY_SECONDS[min(count, len(RETRY_SECONDS)) - 1]
        self._faults[attempt_id, step] = Fault(count, now + wait, f"{type(error).__name__}: {error}")

    def note_success(self, attempt_id: str, step: SessionStep) -> None:
        """Forget the errors of a step that worked."""
        if self._faults:
            self._faults.pop((attempt_id, step), None)

    def forget(self, attempt_id: str) -> None:
        """Drop the errors of a session that is over."""
        if self._faults:
            for key in [key for key in self._faults if key[0] == attempt_id]:
                del self._faults[key]


class _Isolation:
    """The block of `isolated`. A class: every session enters it several times per pass, and a generator costs more."""

    __slots__ = ("_attempt_id", "_faults", "_now", "_step")

    def __init__(self, faults: SessionFaults, attempt_id: str, step: SessionStep, now: float) -> None:
        self._faults = faults
        self._attempt_id = attempt_id
        self._step = step
        self._now = now

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if error is None:
            self._faults.note_success(self._attempt_id, self._step)
        elif isinstance(error, Exception):
            self._faults.note_error(self._attempt_id, self._step, error, self._now)
            return True
        return False
