"""Sessions and runs by name: places that are held until they are released, without waiting. Half of the Limiter."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from paceline.core import Deferred, Governor, Granted, Ticket
from paceline.core.state.ledger import Books
from paceline.core.values.scopes import RUNS, SESSIONS, path_scopes
from paceline.core.values.validation import check_name
from paceline.errors import CapacityError, MaxRunsExceeded, MaxSessionsExceeded, TicketConflict


class NamedSlots:
    """Knows which tickets belong to which session, whether or not the session itself has a place."""

    _governor: Governor
    _books: Books
    _now: Callable[[], float]
    _closed: bool

    def __init__(self) -> None:
        self._by_session: dict[str, dict[str, None]] = {}
        self._run_owner: dict[str, str] = {}

    if TYPE_CHECKING:  # what the Limiter brings

        def _attend(self) -> None: ...

        def _tell(self, name: str, at: float, scope: str | None, fields: dict[str, object]) -> None: ...

        def _tell_granted(self, granted: Granted, scope: str) -> None: ...

    def acquire_session(self, session: str, *, scope: str | None = None) -> None:
        """A place for a whole session, held until released. Never waits; again for the same name does nothing."""
        scopes = (SESSIONS, *(path_scopes(scope) if scope is not None else ()))
        self._acquire_named(_session_id(check_name(session, "session")), session, scopes, None, MaxSessionsExceeded)

    def acquire_run(self, session: str, run: str, *, scope: str | None = None) -> None:
        """A place for one run of a session, held until released with it or before. Never waits."""
        ticket_id = _run_id(check_name(run, "run"))
        owner = self._run_owner.get(ticket_id, check_name(session, "session"))
        if owner != session:
            raise TicketConflict(f"run {run!r} belongs to session {owner!r}; choose another id for session {session!r}")
        scopes = (RUNS, *(path_scopes(scope) if scope is not None else ()))
        self._acquire_named(ticket_id, session, scopes, self._session_ticket(session), MaxRunsExceeded)
        self._run_owner[ticket_id] = session

    def _acquire_named(
        self, ticket_id: str, session: str, scopes: tuple[str, ...], parent: str | None, error: type[CapacityError]
    ) -> None:
        if self._closed:
            raise CapacityError("the limiter is closed")
        if ticket_id in self._by_session.get(session, ()):
            if self._governor.renew(ticket_id, now=self._now()):  # one from before a restart has found its holder
                return
            self._release_named(ticket_id)  # too late: its place was given on, or is about to be
            self._forget(session, ticket_id)
        verdict = self._governor.try_request(Ticket(ticket_id, scopes, parent=parent, leased=False), now=self._now())
        if isinstance(verdict, Granted):
            self._by_session.setdefault(session, {})[ticket_id] = None
        self._attend()
        if isinstance(verdict, Deferred):
            raise error(verdict.detail)
        self._tell_granted(verdict, scopes[-1])

    def release_run(self, run: str) -> None:
        """Give a run's place back. Idempotent."""
        ticket_id = _run_id(check_name(run, "run"))
        self._forget(self._run_owner.get(ticket_id, ""), ticket_id)
        self._release_named(ticket_id)

    def release_session(self, session: str) -> None:
        """Give the session's place back, and those of all its runs. Idempotent."""
        held = self._by_session.pop(check_name(session, "session"), {})
        for ticket_id in sorted(held, key=lambda held_id: held_id == _session_id(session)):  # the session itself last
            self._run_owner.pop(ticket_id, None)
            self._release_named(ticket_id)

    def _release_named(self, ticket_id: str) -> None:
        now = self._now()
        self._governor.pass_time(now=now)
        slot = self._books.slots.get(ticket_id)  # it may have been reclaimed just now, or long ago
        self._governor.release(ticket_id, now=now)
        self._attend()
        if slot is not None:
            fields: dict[str, object] = {"ticket": ticket_id, "held": now - slot.granted_at}
            self._tell("slot.released", now, slot.lane.names[-1], fields)

    def _forget(self, session: str, ticket_id: str) -> None:
        self._run_owner.pop(ticket_id, None)
        held = self._by_session.get(session)
        if held is not None:
            held.pop(ticket_id, None)
            if not held:
                del self._by_session[session]

    def _session_ticket(self, session: str) -> str | None:
        """The ticket of a session that was acquired by name, or that goes by its ticket: the engine's own do."""
        ticket_id = _session_id(session)
        if ticket_id in self._by_session.get(session, ()):
            return ticket_id
        slot = self._books.slots.get(session)
        return session if slot is not None and SESSIONS in slot.ticket.scopes else None

    def _owners(self) -> dict[str, str]:
        return {ticket_id: session for session, held in self._by_session.items() for ticket_id in held}

    def _remember_named(self, ticket: Ticket, owner: str | None) -> None:
        """One from before a restart: it can be released by its name, or by that of its session."""
        if owner is None and ticket.id.startswith("session:"):
            owner = ticket.id.removeprefix("session:")
        elif owner is None and ticket.parent is not None:
            owner = ticket.parent.removeprefix("session:")
        if owner is not None:
            self._by_session.setdefault(owner, {})[ticket.id] = None
            if ticket.id.startswith("run:"):
                self._run_owner[ticket.id] = owner


def _session_id(session: str) -> str:
    return f"session:{session}"


def _run_id(run: str) -> str:
    return f"run:{run}"
