"""Events as lines for people and as JSON. The numbers in a line are the fields of the event."""

from collections.abc import Mapping
from zoneinfo import ZoneInfo

from paceline.cli.output import one_line
from paceline.cli.time_text import absolute, clock_time, relative, span_text
from paceline.cli.work_text import UNKNOWN, dollars
from paceline.events import Event
from paceline.store import StoredEvent

STYLES = {
    "unit.done": "green",
    "unit.failed": "red",
    "unit.quarantined": "bold red",
    "unit.unverified": "bold red",
    "unit.held": "bold yellow",
    "unit.parked": "yellow",
    "account.held": "bold red",
    "campaign.paused": "bold yellow",
    "budget.warning": "yellow",
    "budget.reached": "bold yellow",
    "window.closed": "yellow",
    "window.reopened": "green",
    "scope.paused": "yellow",
}

NO_LIMIT = "none"
_IN_LINE = ("ticket", "action", "target")
"""Fields that say nothing to people, or that the beginning of the line has."""
SHORT = 1000.0
"""Smaller numbers are shown with three digits: they are waits and ratios, which are never more precise."""


def style_of(event: Event) -> str:
    return STYLES.get(event.name, "")


def line_of(event: Event, zone: ZoneInfo) -> str:
    """Return an event as one line.

    `03:00:12 parked docs/a: the quota window is spent, again at 05:00:00 (in 2 h 00 min)`
    """
    what, subject = _what_and_subject(event)
    detail = _detail(event, zone)
    line = f"{clock_time(event.at, zone)} {what} {subject}".rstrip()
    return one_line(f"{line}: {detail}" if detail else line, longest=400)


def _what_and_subject(event: Event) -> tuple[str, str]:
    fields = event.fields
    if "action" in fields:
        kind = {"control.token": " token", "control.host": " host"}.get(event.name, "")
        return f"{fields['action']}{kind}", str(fields.get("target", ""))
    what = event.name.replace("unit.", "").replace(".", " ").replace("_", " ")
    return what, (event.unit if event.name.startswith(("unit.", "workspace.")) else event.scope) or ""


def audit_entry(event: Event) -> dict[str, str]:
    """Return a change as an audit shows it: who made it, what it was, and what it was made to."""
    what, target = _what_and_subject(event)
    return {
        "by": str(event.fields.get("by", "")),
        "what": what.removeprefix("control "),
        "target": target or str(event.fields.get("unit", "")),
    }


def audit_line(event: Event, zone: ZoneInfo) -> str:
    """Return a change as one line.

    `2026-11-16 03:00:12 UTC alice@box1 (cli): limit anthropic/max-1 3`
    """
    entry = audit_entry(event)
    value = next((event.fields[name] for name in ("limit", "seconds") if name in event.fields), "")
    words = (entry["what"], entry["target"], NO_LIMIT if value is None else str(value))
    line = " ".join(word for word in words if word)
    return one_line(f"{absolute(event.at, zone)} {entry['by'] or 'unknown'}: {line}", longest=400)


def _detail(event: Event, zone: ZoneInfo) -> str:
    fields = event.fields
    if event.name.startswith("unit."):
        return _unit_detail(event, zone)
    if event.name.startswith("budget."):
        return _budget_detail(event, zone)
    known = {name: value for name, value in fields.items() if value is not None and name not in _IN_LINE}
    return ", ".join(f"{name.replace('_', ' ')} {_shown(name, value, event.at, zone)}" for name, value in known.items())


def _unit_detail(event: Event, zone: ZoneInfo) -> str:
    fields = event.fields
    if event.name in ("unit.started", "unit.resumed"):
        where = f"on {event.scope}" if event.scope else ""
        session = f", conversation {fields['session_id']}" if fields.get("session_id") else ""
        return f"{where}{session}"
    if event.name == "unit.done":
        return ""
    if event.name == "unit.checked":
        return _check_detail(fields)
    if event.name == "unit.delivered":
        return ", ".join(f"{name} {fields[name]}" for name in ("branch", "patch") if fields.get(name))
    reason, resume_at = str(fields.get("reason") or ""), fields.get("resume_at")
    if isinstance(resume_at, int | float):
        reason += f", again at {_shown('resume_at', resume_at, event.at, zone)}"
    return reason


def _budget_detail(event: Event, zone: ZoneInfo) -> str:
    """Return what is spent of a budget: `$4.02 of $5/day, continues 00:00:00 (in 3 h 20 min)`."""
    spent, resumes_at = event.fields.get("spent"), event.fields.get("resumes_at")
    text = f"{dollars(spent) if isinstance(spent, int | float) else UNKNOWN} of {event.fields.get('budget')}"
    is_reached = event.name == "budget.reached" and resumes_at is not None
    return f"{text}, continues {_shown('resumes_at', resumes_at, event.at, zone)}" if is_reached else text


def _check_detail(fields: Mapping[str, object]) -> str:
    """Return how a check ended: a reason means that it could not do its work."""
    exit_code, seconds = fields.get("exit_code"), fields.get("seconds")
    ending = fields.get("reason") or ("passed" if exit_code == 0 else f"failed with exit code {exit_code}")
    return f"{ending} after {span_text(seconds)}" if isinstance(seconds, int | float) else str(ending)


def _shown(name: str, value: object, seen_at: float, zone: ZoneInfo) -> str:
    is_moment = name.endswith("_at") or name == "until"
    if is_moment and isinstance(value, int | float):
        return f"{clock_time(value, zone)} ({relative(value - seen_at)})"
    return f"{value:.3g}" if isinstance(value, float) and abs(value) < SHORT else str(value)


def as_json(stored: StoredEvent) -> dict[str, object]:
    event = stored.event
    return {
        "id": stored.id,
        "at": event.at,
        "name": event.name,
        "scope": event.scope,
        "unit": event.unit,
        "fields": event.fields,
    }
