"""Whether a plan may run on the machine of the engine, or only on other hosts."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from paceline.settings import Settings
from paceline.settings.host_fields import LOCAL_HOST


def names_host(patterns: Sequence[str], host: str) -> bool:
    """Return whether a plan lets its sessions run on the host: it names none, or this one."""
    return not patterns or any(fnmatchcase(host, pattern) for pattern in patterns)


def may_run_here(hosts: Sequence[str], labels: Sequence[str], settings: Settings | None) -> bool:
    """Return whether sessions of such a plan may start on the machine of the engine."""
    local = settings.hosts.get(LOCAL_HOST) if settings is not None else None
    have = local.labels if local is not None else ()
    is_closed = local is not None and local.max_sessions == 0
    return names_host(hosts, LOCAL_HOST) and not is_closed and all(label in have for label in labels)
