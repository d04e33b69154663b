"""What the demo knows of its units: where each one is and what happened last. Counts only.

Fed with the engine's events in the order they were stored; read by the live view and the summary. No I/O, no clock.
"""

from collections import deque
from collections.abc import Iterator
from typing import Literal

import msgspec

from paceline.events import Event

PieceState = Literal["waiting", "running", "parked", "done", "stuck"]
Tone = Literal["good", "bad", "news"]
KEPT_LINES = 200
SAME_NEWS_SECONDS = 1.5
STATES: dict[str, PieceState] = {
    "unit.started": "running",
    "unit.resumed": "running",
    "unit.parked": "parked",
    "unit.requeued": "waiting",
    "unit.failed": "waiting",
    "unit.done": "done",
    "unit.held": "stuck",
    "unit.quarantined": "stuck",
}


class Piece(msgspec.Struct, eq=False):
    """One unit. `since` is when its session began, `resume_at` when a parked one may go on."""

    id: str
    state: PieceState = "waiting"
    since: float = 0.0
    resume_at: float | None = None
    goes_on: bool = False
    """Whether its session goes on with the conversation of an earlier one."""

    def state_at(self, now: float) -> PieceState:
        """A parked unit whose time has come only waits for its turn."""
        is_due = self.state == "parked" and self.resume_at is not None and self.resume_at <= now
        return "waiting" if is_due else self.state


class Batch(msgspec.Struct, eq=False):
    """One campaign. `contested` counts the sessions it was given while the other one could have used them."""

    name: str
    priority: int
    pieces: dict[str, Piece]
    contested: int = 0
    done_at: float | None = None

    @property
    def done(self) -> int:
        return sum(piece.state == "done" for piece in self.pieces.values())

    def waits(self, now: float) -> bool:
        return any(piece.state_at(now) == "waiting" for piece in self.pieces.values())


class Line(msgspec.Struct, frozen=True):
    """One thing that happened, `at` seconds after the start. A later line has a larger `number`."""

    number: int
    at: float
    tone: Tone
    text: str


class Ledger:
    """The whole of it."""

    def __init__(self, batches: list[Batch], started_at: float) -> None:
        self.batches = batches
        self.started_at = started_at
        self.lines: deque[Line] = deque(maxlen=KEPT_LINES)
        self.resumed = 0
        self.reopenings = 0
        self.window: Literal["open", "closed", "probed"] = "open"
        self.peak_sessions = 0
        self._said = 0
        self._parking: _Parking | None = None

    @property
    def pieces(self) -> Iterator[Piece]:
        return (piece for batch in self.batches for piece in batch.pieces.values())

    @property
    def total(self) -> int:
        return sum(len(batch.pieces) for batch in self.batches)

    @property
    def done(self) -> int:
        return sum(batch.done for batch in self.batches)

    def in_state(self, state: PieceState, now: float) -> list[Piece]:
        return [piece for piece in self.pieces if piece.state_at(now) == state]

    def hear(self, event: Event) -> None:
        """Take note of an event of the engine."""
        if event.unit is not None and event.name in STATES:
            self._hear_unit(event, *event.unit.split("/", 1))
        is_known = event.name == "window.closed" and self.window == "closed"
        self._hear_window(event)
        sentence = sentence_of(event)
        if sentence is not None and not is_known:
            self._add_line(event.at, *sentence)

    def _hear_window(self, event: Event) -> None:
        match event.name:
            case "window.closed":
                self.window = "closed"
            case "window.canary":
                self.window = "probed"
            case "window.reopened":
                self.window = "open"
                self.reopenings += 1

    def _hear_unit(self, event: Event, campaign: str, unit: str) -> None:
        batch = next(batch for batch in self.batches if batch.name == campaign)
        piece = batch.pieces[unit]
        state = STATES[event.name]
        if state == "running":
            batch.contested += all(other.waits(event.at) for other in self.batches)
            piece.since, piece.goes_on = event.at, event.fields["session_id"] is not None
            self.resumed += piece.goes_on
        piece.state = state
        resume_at = event.fields.get("resume_at")
        piece.resume_at = _number(resume_at) if resume_at is not None else None
        if state == "parked":
            self._hear_parked(event, piece)
        if batch.done == len(batch.pieces):
            batch.done_at = event.at - self.started_at
            self._add_line(event.at, "good", f"{campaign} is done: {batch.done} units")
        self.peak_sessions = max(self.peak_sessions, sum(piece.state == "running" for piece in self.pieces))

    def _hear_parked(self, event: Event, piece: Piece) -> None:
        """Units that are parked one after the other for the same reason are one piece of news."""
        reason = str(event.fields["reason"])
        before = self._parking
        units = [piece.id]
        if before is not None and before.reason == reason and event.at - before.at < SAME_NEWS_SECONDS:
            units = [*before.units, piece.id]
            self.lines.remove(before.line)
        what = units[0] if len(units) == 1 else f"now {len(units)} units"
        wait = _left(event.fields["resume_at"], event.at)
        self._add_line(event.at, "news", f"{what} parked for {wait}, no attempt charged: {reason}")
        self._parking = _Parking(reason, event.at, units, self.lines[-1])

    def _add_line(self, at: float, tone: Tone, text: str) -> None:
        self._said += 1
        self.lines.append(Line(self._said, max(0.0, at - self.started_at), tone, text))

    def untold(self, last_told: int) -> list[Line]:
        """The lines that are newer than the one with this number."""
        return [line for line in self.lines if line.number > last_told]


class _Parking(msgspec.Struct, frozen=True):
    """The last news of parked units."""

    reason: str
    at: float
    units: list[str]
    line: Line


def sentence_of(event: Event) -> tuple[Tone, str] | None:
    """What happened to the account, in words; None for what comes with every unit."""
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
        case "unit.failed" | "unit.held" | "unit.quarantined":
            return "bad", f"{event.unit}: {fields['reason']}"
    return None


def _left(until: object, now: float) -> str:
    return "an unknown time" if until is None else f"{max(0.0, _number(until) - now):.0f} s"


def _number(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)
