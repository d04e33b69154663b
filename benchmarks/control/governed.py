"""Our defaults: the shipped Governor, driven through its public contract only."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from benchmarks.control.answers import Readings, Refusal
from benchmarks.control.fleet import END, WAIT, Answer, Session
from paceline.core import Governor, GovernorSettings, Granted, PollUsage, Ticket
from paceline.core.signals import Budget, Overloaded, QuotaClosed, RateLimited, Signal, Succeeded, Usage

ACCOUNT = "anthropic/max-1"
SLOW_RETRY_SECONDS = 1.0


@dataclass(slots=True, frozen=True)
class Wiring:
    """The way a caller reports to the Governor. Callers differ, and the control must not depend on it."""

    reports_acceptance: bool = True
    """Whether an accepted start is reported at once, not only at the end of the first turn."""
    requests_runs: bool = True
    """Whether each turn requests a run of its session. Otherwise only sessions are requested."""
    names_cause: bool = True
    """Whether a refusal for its rate is recognised. Otherwise all 429s are alike."""
    scope_per_model: bool = True
    """Whether refusals are reported to the model's scope. Otherwise to the account's."""


class Governed:
    """Sessions are tickets, turns are runs with the session as parent."""

    def __init__(
        self, limits: dict[str, int], readings: Readings | None, wiring: Wiring, settings: GovernorSettings | None
    ) -> None:
        self.wiring = wiring
        self.paths = {model: f"{ACCOUNT}/{model}" if wiring.scope_per_model else ACCOUNT for model in limits}
        self.readings = readings
        base = settings or GovernorSettings()
        self.governor = Governor(
            GovernorSettings(
                limits={self.paths[model]: limit for model, limit in limits.items()},
                cooldown=base.cooldown,
                headroom=base.headroom,
                slot_timeout=30 * 86400.0,
                first_ramp=base.first_ramp,
                usage_scopes=tuple(self.paths.values()) if readings is not None else (),
            ),
            now=0.0,
        )
        self._model = {path: model for model, path in self.paths.items()}
        self._sessions: dict[str, Session] = {}
        self._ready: list[tuple[Literal["start", "turn"], Session]] = []
        if readings is not None:
            for path in dict.fromkeys(self.paths.values()):
                self._answer_poll(path, 0.0)
        self._scopes = {model: self._scopes_of(path) for model, path in self.paths.items()}

    def _scopes_of(self, path: str) -> tuple[str, ...]:
        parts = path.split("/")
        return tuple("/".join(parts[: count + 1]) for count in range(len(parts)))

    # -- sessions ------------------------------------------------------------------------------

    def enqueue(self, session: Session, now: float) -> None:
        campaign = session.campaign
        ticket = Ticket(
            session.id, ("sessions", *self._scopes[session.model]), campaign.name.split("/")[0], campaign.priority
        )
        self._sessions[session.id] = session
        if isinstance(self.governor.request(ticket, now=now), Granted):
            self._ready.append(("start", session))

    def poll(self, now: float) -> Iterator[tuple[Literal["start", "turn"], Session]]:
        while effects := self.governor.advance(now=now):
            for effect in effects:
                if isinstance(effect, Granted):
                    name = effect.ticket_id
                    what: Literal["start", "turn"] = "turn" if name.endswith(":turn") else "start"
                    self._ready.append((what, self._sessions[name.removesuffix(":turn")]))
                elif isinstance(effect, PollUsage):
                    self._answer_poll(effect.scope, now)
        ready, self._ready = self._ready, []
        yield from ready

    def wake(self) -> float | None:
        return self.governor.next_wakeup()

    def accepted(self, session: Session, now: float) -> None:
        if self.wiring.reports_acceptance:
            self._report(session, Succeeded(ticket=session.id), now)

    def start_refused(self, session: Session, refusal: Refusal, now: float) -> None:
        self._report(session, self._signal(refusal, session.id, now), now)
        self.governor.release(session.id, now=now)
        del self._sessions[session.id]

    def ended(self, session: Session, now: float) -> None:
        self.governor.cancel(f"{session.id}:turn", now=now)
        self.governor.release(f"{session.id}:turn", now=now)
        self.governor.release(session.id, now=now)
        del self._sessions[session.id]

    # -- turns ---------------------------------------------------------------------------------

    def ask_turn(self, session: Session, now: float) -> Answer:
        if not self.wiring.requests_runs:
            return END if self._is_too_much(session, now) else now
        ticket = Ticket(
            f"{session.id}:turn",
            ("runs", *self._scopes[session.model]),
            session.campaign.name.split("/")[0],
            session.campaign.priority,
            parent=session.id,
        )
        verdict = self.governor.request(ticket, now=now)
        if isinstance(verdict, Granted):
            return now
        return END if verdict.reason in ("limit", "platform_limit", "window_closed") else WAIT

    def _is_too_much(self, session: Session, now: float) -> bool:
        status = self.governor.status(self.paths[session.model], now=now)
        assert status is not None
        is_closed = status.window is not None and status.window.state == "closed"
        return is_closed or (status.limit is not None and status.in_flight > status.limit)

    def turn_refused(self, session: Session, refusal: Refusal, now: float) -> Answer:
        speaker = f"{session.id}:turn" if self.wiring.requests_runs else session.id
        self._report(session, self._signal(refusal, speaker, now), now)
        if self.wiring.requests_runs:
            self.governor.release(f"{session.id}:turn", now=now)
            return END if refusal.kind == "window" else self.ask_turn(session, now)
        return END if refusal.kind == "window" else now + (refusal.retry_after or 30.0)

    def turn_done(self, session: Session, seconds: float, now: float) -> None:
        speaker = session.id
        if self.wiring.requests_runs:
            speaker = f"{session.id}:turn"
        self._report(session, Succeeded(ticket=speaker, tokens=int(session.tokens)), now)
        if self.readings is not None:
            self._report_headers(session, now)
        if self.wiring.requests_runs:
            self.governor.release(speaker, now=now)

    # -- signals -------------------------------------------------------------------------------

    def _report(self, session: Session, signal: Signal, now: float) -> None:
        self.governor.report(self.paths[session.model], signal, now=now)

    def _signal(self, refusal: Refusal, ticket: str, now: float) -> Signal:
        match refusal.kind:
            case "window":
                return QuotaClosed(resets_at=refusal.resets_at, window=refusal.window, source="field", ticket=ticket)
            case "overload":
                return Overloaded(ticket=ticket)
            case _:
                cause = refusal.cause if self.wiring.names_cause else None
                return RateLimited(retry_after=refusal.retry_after, cause=cause, ticket=ticket)

    def _answer_poll(self, path: str, now: float) -> None:
        assert self.readings is not None
        models = [self._model[path]] if self.wiring.scope_per_model else list(self.paths)
        answers = [self.readings.usage(model, now) for model in models]
        usage = Usage(
            concurrent_sessions=sum(answer.in_use for answer in answers), limit=sum(answer.limit for answer in answers)
        )
        self.governor.report(path, usage, now=now)

    def _report_headers(self, session: Session, now: float) -> None:
        """Report the rates and windows in the response's headers."""
        assert self.readings is not None
        if (rates := self.readings.rate_headers(now)) is not None:
            budget = Budget(
                requests_remaining=rates.requests_remaining,
                requests_reset_at=rates.requests_full_at,
                tokens_remaining=rates.tokens_remaining,
                tokens_reset_at=rates.tokens_full_at,
                requests_limit=rates.requests_limit,
                tokens_limit=rates.tokens_limit,
            )
            self._report(session, budget, now)
        for window in self.readings.window_headers(session.model, now):
            budget = Budget(used_ratio=window.used_ratio, window=window.name, resets_at=window.resets_at)
            self._report(session, budget, now)
