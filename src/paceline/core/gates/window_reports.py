"""When each window was last reported open. A closing that contradicts such a report may be no closing at all.

Some CLIs call every 429 of a login a spent window, also one for too many at once.
"""

from paceline.core.gates.quota_window import (
    CONTRADICTED_CONFIDENCE,
    NEARLY_SPENT_RATIO,
    STRUCTURED_SOURCES,
    Window,
)
from paceline.core.gates.reopening_belief import UNTRUSTED_CONFIDENCE
from paceline.core.signals import QuotaClosed

MOST_REPORTS = 16
"""Windows of which a report is remembered: providers have two to five."""
CONTRADICTION_SECONDS = 60.0
"""A window that was reported open so shortly before it "closes", while several ran, may still be open. A minute is
about one turn."""


def note_open(reports: dict[str, float], window: str, now: float) -> None:
    """Remember that the window was just reported open."""
    reports.pop(window, None)
    reports[window] = now
    if len(reports) > MOST_REPORTS:
        del reports[next(iter(reports))]


def is_contradicted(reports: dict[str, float], window: Window, closed: QuotaClosed, now: float) -> bool:
    """Return whether a closing contradicts what was reported moments ago, or what it says itself."""
    if window.state == "closed":
        return window.is_contradicted  # many sessions that meet the same closing are one
    if closed.source in STRUCTURED_SOURCES and UNTRUSTED_CONFIDENCE < closed.confidence <= CONTRADICTED_CONFIDENCE:
        return True
    open_at = reports.get(window.name)
    if open_at is None or now - open_at > CONTRADICTION_SECONDS:
        return False
    return not window.is_read or window.used_ratio is None or window.used_ratio < NEARLY_SPENT_RATIO
