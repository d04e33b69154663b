"""The lease of a host, as the supervisors of its sessions watch it. Imported by them, so it needs almost nothing."""

import time

from paceline.executors.proc_table import boot_id, contents

LEASE_CHECK_SECONDS = 5.0
"""How often the lease of a host is read: `poll` does not count the time in which a machine sleeps, the lease does."""


class LeaseWatch:
    """The time up to which the leader trusts this host, in a file that a worker renews (`CLOCK_BOOTTIME`).

    Without a file it never ends. A file that cannot be read changes nothing: the time read last counts.
    """

    def __init__(self, file: str, until: float) -> None:
        self.file = file
        self.until = until
        self.check_at = time.monotonic() if file else float("inf")

    def is_over(self, now: float) -> bool:
        if now < self.check_at:
            return False
        self.until = self.written()
        left = self.until - time.clock_gettime(time.CLOCK_BOOTTIME)
        self.check_at = now + min(left, LEASE_CHECK_SECONDS) if left > 0 else float("inf")
        return left <= 0

    def written(self) -> float:
        """Return the time in the file. One of another machine, or of an earlier boot, is on another clock."""
        try:
            until, boot = contents(self.file).decode().split()
            return float(until) if boot == boot_id() else self.until
        except (OSError, ValueError):
            return self.until
