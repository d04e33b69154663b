"""Every event name with its fields, in one list. Logs, metrics, streams and tables read it.

A `control.` event is a command. What a person or a program changes has the field `by`: who did it.

The Governor emits the events of scopes, windows and leases. The limiter emits those of slots, because the Governor
answers its caller directly. The engine emits the events of units.
"""

from typing import Final

import msgspec

FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "slot.granted": ("ticket", "waited"),
    "slot.deferred": ("ticket", "reason", "detail", "retry_at", "campaign", "account", "host"),
    "slot.released": ("ticket", "held"),
    "slot.lost": ("ticket", "reclaimed_at"),
    "slot.reclaimed": ("ticket",),
    "scope.paused": ("until", "cause"),
    "scope.resumed": (),
    "scope.limit_set": ("limit", "previous"),
    "scope.limit_reduced": ("limit", "previous", "reduced_from"),
    "scope.limit_raised": ("limit", "previous"),
    "scope.platform_limit": ("detected_limit", "effective_cap", "previous_cap"),
    "scope.paced": ("interval", "cause"),
    "window.closed": ("window", "resets_at", "source", "confidence", "probe_at"),
    "window.canary": ("window", "ticket"),
    "window.reopened": ("window",),
    "account.held": ("detail", "until"),
    "unit.started": ("attempt", "session_id"),
    "unit.resumed": ("attempt", "session_id"),
    "unit.done": ("reason", "resume_at", "exit_code", "attempts"),
    "unit.failed": ("reason", "resume_at", "exit_code", "attempts"),
    "unit.parked": ("reason", "resume_at", "exit_code", "attempts"),
    "unit.requeued": ("reason", "resume_at", "exit_code", "attempts"),
    "unit.held": ("reason", "resume_at", "exit_code", "attempts"),
    "unit.unverified": ("reason", "resume_at", "exit_code", "attempts"),
    "unit.quarantined": ("reason", "resume_at", "exit_code", "attempts"),
    "unit.worked": ("exit_code",),
    "unit.checked": ("round", "exit_code", "seconds", "reason"),
    "unit.delivered": ("branch", "commit", "patch"),
    "unit.ending": ("reason", "resume_at"),
    "workspace.created": ("path", "branch"),
    "workspace.lost": ("path", "branch"),
    "unit.cancelled": ("reason", "resume_at", "exit_code", "attempts"),
    "key.created": ("name", "pool", "models", "rpm", "tpm", "parallel", "priority_max", "weight", "budget"),
    "key.revoked": ("name",),
    "budget.warning": ("budget", "spent", "share", "resumes_at"),
    "budget.reached": ("budget", "spent", "share", "resumes_at"),
    "engine.leading": ("owner",),
    "engine.stopped": ("owner",),
    "control.limit": ("limit",),
    "control.remove": (),
    "control.rate": ("rpm", "tpm"),
    "control.reset_rate": (),
    "control.cooldown": ("seconds",),
    "control.reset": (),
    "control.restore": (),
    "control.lift": (),
    "control.campaigns": ("action", "target"),
    "control.end_at_turn": ("unit", "attempt", "reason", "resume_at", "is_held"),
    "control.token": ("action", "target"),
    "control.host": ("action", "target"),
    "control.gc": ("outputs", "events", "workspaces"),
    "control.set_aside": ("key",),
    "control.slot_request": ("slot",),
    "control.slot_release": ("id",),
    "control.slot_report": ("signal",),
}
ATTEMPT_STARTS: Final = frozenset({"unit.started", "unit.resumed"})
"""An attempt begins with one of these events."""
_WITHIN_ATTEMPTS: Final = frozenset({"unit.worked", "unit.checked", "unit.delivered", "unit.ending"})
ATTEMPT_ENDS: Final = frozenset(name for name in FIELDS if name.startswith("unit.")) - ATTEMPT_STARTS - _WITHIN_ATTEMPTS
"""An attempt ends with one of these events."""


class Event(msgspec.Struct, frozen=True, tag=True):
    """Something that happened. `fields` holds what `FIELDS[name]` lists."""

    name: str
    at: float
    scope: str | None = None
    unit: str | None = None
    fields: dict[str, object] = {}


def is_campaign_wait(event: Event) -> bool:
    """Return whether the event is about units of a campaign that wait, and not about one slot of a program."""
    return event.name == "slot.deferred" and "campaign" in event.fields
