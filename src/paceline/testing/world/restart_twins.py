"""Two Governors that get the same calls. One is stored and restored meanwhile; both must answer alike."""

from typing import Any, cast

import msgspec

from paceline.core import Governor, Granted, Snapshot


def restarted(governor: Governor, now: float) -> Governor:
    """Return the Governor after storing and restoring it, through JSON as a store does."""
    snapshot = governor.snapshot()
    stored = msgspec.json.encode(snapshot)
    return Governor.restore(msgspec.json.decode(stored, type=type(snapshot)), now=now)


class TwinGovernors:
    """A pair with the verbs of a Governor. Each call goes to both, and their answers are compared."""

    def __init__(self, governor: Governor, now: float) -> None:
        self.never_stopped = governor
        self.restarted = restarted(governor, now)

    def restart(self, now: float) -> None:
        self.restarted = restarted(self.restarted, now)

    def snapshot(self) -> Snapshot:
        """Return the snapshot of one of them. Their answers must be alike, not their snapshots."""
        return self.never_stopped.snapshot()

    def next_wakeup(self) -> float | None:
        """Return the later one. A Governor may ask for a wake-up that is no longer needed, but never too late."""
        first, second = self.never_stopped.next_wakeup(), self.restarted.next_wakeup()
        return None if first is None or second is None else max(first, second)

    def __getattr__(self, verb: str) -> Any:
        def both(*args: Any, **kwargs: Any) -> Any:
            first = getattr(self.never_stopped, verb)(*args, **kwargs)
            second = getattr(self.restarted, verb)(*args, **kwargs)
            if first != second and not _are_alike(first, second):
                raise AssertionError(f"{verb} answered {first!r}, but {second!r} after a restart")
            return first

        return both

    def as_governor(self) -> Governor:
        """Return the pair for callers that expect one Governor."""
        return cast(Governor, self)


def _are_alike(first: Any, second: Any) -> bool:
    """Return whether answers are alike. Only the order of grants matters, not that of other effects."""
    if not isinstance(first, list) or not isinstance(second, list):
        return False
    if [e for e in first if isinstance(e, Granted)] != [e for e in second if isinstance(e, Granted)]:
        return False
    return sorted(map(repr, first)) == sorted(map(repr, second))


def restart(governor: Governor, now: float) -> Governor:
    """Restart a governor, or the one of a pair that may be restarted."""
    if isinstance(governor, TwinGovernors):
        governor.restart(now)
        return governor.as_governor()
    return restarted(governor, now)
