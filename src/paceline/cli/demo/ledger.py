"""What the demo knows of its agents: where each one is, what was refused, what happened last. Counts only.

Fed by the agents and by the limiter's events; read by the live view and the summary. No I/O, no clock.
"""

from collections import Counter, deque
from collections.abc import Iterable
from typing import Literal

import msgspec

from paceline.core.signals import Overloaded, PlatformLimit, QuotaClosed, RateLimited, Signal
from paceline.events import Event

AgentState = Literal["idle", "waiting", "running", "done"]
Tone = Literal["good", "bad", "news"]
KEPT_LINES = 200
SAME_NEWS_SECONDS = 0.5
REFUSALS: dict[type[Signal], str] = {
    PlatformLimit: "too many at once",
    RateLimited: "too fast",
    QuotaClosed: "window spent",
    Overloaded: "overloaded",
}


class Agent(msgspec.Struct, eq=False):
    """One simulated agent: so many calls, one after the other."""

    number: int
    calls: int
    state: AgentState = "idle"
    done: int = 0
    ticket: str | None = None


class Team(msgspec.Struct, eq=False):
    """Agents of one priority. `contested` counts the places it was given while the other team waited too."""

    name: str
    priority: int
    agents: list[Agent]
    contested: int = 0

    @property
    def done(self) -> int:
        return sum(agent.done for agent in self.agents)

    @property
    def calls(self) -> int:
        return sum(agent.calls for agent in self.agents)

    def count(self, state: AgentState) -> int:
        return sum(agent.state == state for agent in self.agents)


class Line(msgspec.Struct, frozen=True):
    """One thing that happened, `at` seconds after the start. A later line has a larger `number`."""

    number: int
    at: float
    tone: Tone
    text: str


class Ledger:
    """The whole of it."""

    def __init__(self, teams: list[Team], started_at: float) -> None:
        self.teams = teams
        self.started_at = started_at
        self.refusals: Counter[str] = Counter()
        self.waits: list[float] = []
        self.lines: deque[Line] = deque(maxlen=KEPT_LINES)
        self.reopenings = 0
        self._said = 0
        self._fell: _Fall | None = None

    @property
    def calls(self) -> int:
        return sum(team.calls for team in self.teams)

    @property
    def done(self) -> int:
        return sum(team.done for team in self.teams)

    @property
    def waiting(self) -> int:
        return sum(team.count("waiting") for team in self.teams)

    @property
    def is_finished(self) -> bool:
        return self.done == self.calls

    def asked(self, agent: Agent) -> None:
        """The agent wants a place for its next call."""
        agent.state = "waiting"

    def started(self, team: Team, agent: Agent, waited: float) -> None:
        """A place was given. It counts towards the shares if everybody wanted it."""
        if all(other.count("waiting") for other in self.teams):
            team.contested += 1
        agent.state, agent.ticket = "running", None
        self.waits.append(waited)

    def refused(self, agent: Agent, signals: Iterable[Signal]) -> None:
        """The provider said no; the call is made again later."""
        agent.state = "idle"
        self.refusals[next((REFUSALS[type(signal)] for signal in signals if type(signal) in REFUSALS), "other")] += 1

    def served(self, agent: Agent) -> None:
        agent.done += 1
        agent.state = "done" if agent.done == agent.calls else "idle"

    def hear(self, event: Event) -> None:
        """Keep those of the limiter's events that a person wants to see."""
        if event.name == "window.reopened":
            self.reopenings += 1
        if event.name == "scope.platform_limit":
            self._hear_platform_limit(event)
            return
        sentence = sentence_of(event)
        if sentence is not None:
            self._add_line(event.at, *sentence)

    def _hear_platform_limit(self, event: Event) -> None:
        """Several calls that meet the same wall are one piece of news."""
        known, learnt = event.fields["previous_cap"], event.fields["effective_cap"]
        at = event.at - self.started_at
        if self._fell is not None and at - self._fell.line.at < SAME_NEWS_SECONDS:
            known = self._fell.known
            if self.lines and self.lines[-1] is self._fell.line:
                self.lines.pop()
        self._add_line(event.at, "bad", f"429: too many at once; the limit was {known}, it is {learnt} from now on")
        self._fell = _Fall(self.lines[-1], known)

    def _add_line(self, at: float, tone: Tone, text: str) -> None:
        self._said += 1
        self.lines.append(Line(self._said, max(0.0, at - self.started_at), tone, text))

    def untold(self, last_told: int) -> list[Line]:
        """The lines that are newer than the one with this number."""
        return [line for line in self.lines if line.number > last_told]


class _Fall(msgspec.Struct, frozen=True):
    """The last news of a platform limit, and the limit before it all began."""

    line: Line
    known: object


def sentence_of(event: Event) -> tuple[Tone, str] | None:
    """An event in words, or None for those that come with every call."""
    fields = event.fields
    match event.name:
        case "scope.platform_limit":
            return (
                "bad",
                f"the provider's own limit: {fields['previous_cap']} at once becomes {fields['effective_cap']}",
            )
        case "scope.limit_reduced":
            return "bad", f"one step down: {fields['previous']} at once becomes {fields['limit']}"
        case "scope.limit_raised":
            return "good", f"one step up: {fields['previous']} at once becomes {fields['limit']}"
        case "scope.paused":
            return (
                "bad",
                f"{event.scope} refuses ({fields['cause']}): nobody starts for {_left(fields['until'], event.at)}",
            )
        case "scope.resumed":
            return "good", "the pause is over"
        case "scope.paced":
            return "news", f"starts are spaced: {_number(fields['interval']):.2g} s apart"
        case "window.closed":
            resets = _left(fields["resets_at"], event.at)
            return "bad", f"429: the {fields['window']} window is spent; all wait {resets} for its reset"
        case "window.canary":
            return "news", f"the {fields['window']} window should be open: one canary goes first"
        case "window.reopened":
            return "good", "the canary was served: the window is open, the rest follow in a wave"
    return None


def _left(until: object, now: float) -> str:
    return "an unknown time" if until is None else f"{max(0.0, _number(until) - now):.1f} s"


def _number(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)
