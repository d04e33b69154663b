"""The progress of the demo: the state of each unit, and what happened last.

It is made from the engine's events in the order they were stored. The live view and the summary read it. No I/O, no
clock.
"""

from collections import deque
from collections.abc import Iterator
from typing import Literal

import msgspec

from paceline.events import Event

UnitPhase = Literal["waiting", "running", "parked", "done", "stuck"]
Tone = Literal["good", "bad", "news"]
KEPT_LINES = 200
"""More than a demo produces in its minute."""
SAME_NEWS_SECONDS = 1.5
"""Sessions that meet the same closed window end within this time of each other."""
STATES: dict[str, UnitPhase] = {
    "unit.started": "running",
    "unit.resumed": "running",
    "unit.parked": "parked",
    "unit.requeued": "waiting",
    "unit.failed": "waiting",
    "unit.done": "done",
    "unit.held": "stuck",
    "unit.quarantined": "stuck",
    "unit.unverified": "stuck",
}


class UnitProgress(msgspec.Struct, eq=False):
    """One unit. `since` is the start of its session, `resume_at` when a parked unit may resume."""

    id: str
    state: UnitPhase = "waiting"
    since: float = 0.0
    resume_at: float | None = None
    goes_on: bool = False
    """Return whether its session continues the conversation of an earlier one."""

    def state_at(self, now: float) -> UnitPhase:
        """Return its state. A parked unit whose time has come waits for its turn."""
        is_due = self.state == "parked" and self.resume_at is not None and self.resume_at <= now
        return "waiting" if is_due else self.state


class CampaignProgress(msgspec.Struct, eq=False):
    """One campaign. `contested` counts the sessions it got while the other campaign had work waiting, too."""

    name: str
    priority: int
    units: dict[str, UnitProgress]
    contested: int = 0
    done_at: float | None = None

    @property
    def done(self) -> int:
        return sum(unit.state == "done" for unit in self.units.values())

    def waits(self, now: float) -> bool:
        return any(unit.state_at(now) == "waiting" for unit in self.units.values())


class NewsLine(msgspec.Struct, frozen=True):
    """One thing that happened, `at` seconds after the start. Later lines have larger numbers."""

    number: int
    at: float
    tone: Tone
    text: str


class DemoProgress:
    """The state of the whole demo."""

    def __init__(self, campaigns: list[CampaignProgress], started_at: float) -> None:
        self.campaigns = campaigns
        self.started_at = started_at
        self.lines: deque[NewsLine] = deque(maxlen=KEPT_LINES)
        self.resumed = 0
        self.reopenings = 0
        self.window: Literal["open", "closed", "probed"] = "open"
        self.peak_sessions = 0
        self._numbered = 0
        self._parking: _Parking | None = None

    @property
    def units(self) -> Iterator[UnitProgress]:
        return (unit for campaign in self.campaigns for unit in campaign.units.values())

    @property
    def total(self) -> int:
        return sum(len(campaign.units) for campaign in self.campaigns)

    @property
    def done(self) -> int:
        return sum(campaign.done for campaign in self.campaigns)

    def in_state(self, state: UnitPhase, now: float) -> list[UnitProgress]:
        return [unit for unit in self.units if unit.state_at(now) == state]

    def record(self, event: Event) -> None:
        """Update the progress with an event of the engine."""
        if event.unit is not None and event.name in STATES:
            self._record_unit(event, *event.unit.split("/", 1))
        is_known = event.name == "window.closed" and self.window == "closed"
        self._record_window(event)
        sentence = sentence_of(event)
        if sentence is not None and not is_known:
            self._add_line(event.at, *sentence)

    def _record_window(self, event: Event) -> None:
        match event.name:
            case "window.closed":
                self.window = "closed"
            case "window.canary":
                self.window = "probed"
            case "window.reopened":
                self.window = "open"
                self.reopenings += 1

    def _record_unit(self, event: Event, campaign_name: str, unit_name: str) -> None:
        campaign = next(campaign for campaign in self.campaigns if campaign.name == campaign_name)
        unit = campaign.units[unit_name]
        state = STATES[event.name]
        if state == "running":
            campaign.contested += all(other.waits(event.at) for other in self.campaigns)
            unit.since, unit.goes_on = event.at, event.fields["session_id"] is not None
            self.resumed += unit.goes_on
        unit.state = state
        resume_at = event.fields.get("resume_at")
        unit.resume_at = _number(resume_at) if resume_at is not None else None
        if state == "parked":
            self._record_parked(event, unit)
        if campaign.done == len(campaign.units):
            campaign.done_at = event.at - self.started_at
            self._add_line(event.at, "good", f"{campaign.name} is done: {campaign.done} units")
        self.peak_sessions = max(self.peak_sessions, sum(unit.state == "running" for unit in self.units))

    def _record_parked(self, event: Event, unit: UnitProgress) -> None:
        """Show units that park one after the other for the same reason as one line."""
        reason = str(event.fields["reason"])
        before = self._parking
        units = [unit.id]
        if before is not None and before.reason == reason and event.at - before.at < SAME_NEWS_SECONDS:
            units = [*before.units, unit.id]
            self.lines.remove(before.line)
        what = units[0] if len(units) == 1 else f"now {len(units)} units"
        wait = _left(event.fields["resume_at"], event.at)
        self._add_line(event.at, "news", f"{what} parked for {wait}, no attempt charged: {reason}")
        self._parking = _Parking(reason, event.at, units, self.lines[-1])

    def _add_line(self, at: float, tone: Tone, text: str) -> None:
        self._numbered += 1
        self.lines.append(NewsLine(self._numbered, max(0.0, at - self.started_at), tone, text))

    def newer_than(self, number: int) -> list[NewsLine]:
        """Return the lines that came after the one with this number."""
        return [line for line in self.lines if line.number > number]


class _Parking(msgspec.Struct, frozen=True):
    """The last line about parked units."""

    reason: str
    at: float
    units: list[str]
    line: NewsLine


def sentence_of(event: Event) -> tuple[Tone, str] | None:
    """Return an event of the account as a sentence, or None for events that every unit has."""
    fields = event.fields
    match event.name:
        case "scope.limit_reduced":
            return "bad", f"{event.scope}: one step down, from {fields['previous']} sessions to {fields['limit']}"
        case "scope.limit_raised":
            return "good", f"{event.scope}: one step up, from {fields['previous']} sessions to {fields['limit']}"
        case "scope.paused":
            wait = _left(fields["until"], event.at)
            return "bad", f"429: the session that met it waits {wait}, and no other one starts"
        case "scope.resumed":
            return "good", "the pause is over"
        case "window.closed":
            wait = _left(fields["resets_at"], event.at)
            return (
                "bad",
                f"429: the {fields['window']} window is spent; nothing starts for {wait}",
            )
        case "window.canary":
            return "news", f"the {fields['window']} window should be open: one canary goes first"
        case "window.reopened":
            return "good", "the canary was answered: the rest follow in a wave"
        case "unit.failed" | "unit.held" | "unit.quarantined" | "unit.unverified":
            return "bad", f"{event.unit}: {fields['reason']}"
    return None


def _left(until: object, now: float) -> str:
    return "an unknown time" if until is None else f"{max(0.0, _number(until) - now):.0f} s"


def _number(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)
