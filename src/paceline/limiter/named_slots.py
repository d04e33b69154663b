"""Slots that are acquired and released by a name of the caller's: whole sessions, and runs of a session.

Each has a lease of `slot_timeout`. Acquiring it again renews it, and a session lives as long as its runs do, so that
a task that died does not keep its place.

Here: which tickets belong to which session. Never here: waiting; a named slot is granted at once or refused.
"""

from collections.abc import Iterable, Mapping

from paceline.core import Deferred, Ticket
from paceline.core.values.scopes import RUNS, SESSIONS, path_scopes
from paceline.core.values.validation import check_name
from paceline.errors import CapacityError, MaxRunsExceeded, MaxSessionsExceeded, TicketConflict
from paceline.limiter.event_listener import EventListener
from paceline.limiter.governor_driver import GovernorDriver

SESSION_PREFIX = "session:"
RUN_PREFIX = "run:"


class NamedSlots:
    """The tickets of each session, whether or not the session itself has a slot."""

    def __init__(self, driver: GovernorDriver, listener: EventListener | None) -> None:
        self._driver = driver
        self._governor = driver.governor
        self._listener = listener
        self._by_session: dict[str, dict[str, None]] = {}
        self._run_owner: dict[str, str] = {}

    def acquire_session(self, session: str, scope: str | None) -> None:
        """Take a slot for a whole session, or raise `MaxSessionsExceeded`. Renews the lease of one that has it."""
        ticket_id = SESSION_PREFIX + check_name(session, "session")
        scopes = (SESSIONS, *(path_scopes(scope) if scope is not None else ()))
        self._acquire(Ticket(ticket_id, scopes), session, MaxSessionsExceeded)

    def acquire_run(self, session: str, run: str, scope: str | None) -> None:
        """Take a slot for one run of a session, or raise `MaxRunsExceeded`. Renews the lease of one that has it."""
        ticket_id = RUN_PREFIX + check_name(run, "run")
        owner = self._run_owner.get(ticket_id, check_name(session, "session"))
        if owner != session:
            raise TicketConflict(f"run {run!r} belongs to session {owner!r}; choose another id for session {session!r}")
        scopes = (RUNS, *(path_scopes(scope) if scope is not None else ()))
        parent = self.session_ticket(session)
        self._acquire(Ticket(ticket_id, scopes, parent=parent), session, MaxRunsExceeded)
        self._run_owner[ticket_id] = session

    def _acquire(self, ticket: Ticket, session: str, error: type[CapacityError]) -> None:
        driver = self._driver
        if driver.is_closed:
            raise CapacityError("the limiter is closed")
        if ticket.id in self._by_session.get(session, ()):
            if self._governor.renew(ticket.id, now=driver.now()):  # one from before a restart has found its holder
                return
            self._release(ticket.id)  # too late: another ticket has its places, or is about to get them
            self.forget(session, ticket.id)
        verdict = self._governor.try_request(ticket, now=driver.now())
        if not isinstance(verdict, Deferred):
            self.add(session, ticket.id)
        driver.carry_out()
        if isinstance(verdict, Deferred):
            raise error(verdict.detail)
        if self._listener is not None:
            fields: dict[str, object] = {"ticket": ticket.id, "waited": verdict.waited}
            self._listener.emit("slot.granted", verdict.granted_at, ticket.scopes[-1], fields)

    def release_run(self, run: str) -> None:
        """Release a run's slot. Idempotent."""
        ticket_id = RUN_PREFIX + check_name(run, "run")
        self.forget(self._run_owner.get(ticket_id, ""), ticket_id)
        self._release(ticket_id)

    def release_session(self, session: str) -> None:
        """Release the slots of all runs of the session, and then its own. Idempotent."""
        own = SESSION_PREFIX + check_name(session, "session")
        for ticket_id in sorted(self._by_session.pop(session, {}), key=lambda each: each == own):
            self._run_owner.pop(ticket_id, None)
            self._release(ticket_id)

    def _release(self, ticket_id: str) -> None:
        now = self._driver.now()
        self._governor.pass_time(now=now)
        ticket = self._governor.ticket_of(ticket_id)
        granted_at = self._governor.granted_at(ticket_id)  # None where it was reclaimed, just now or long ago
        self._governor.release(ticket_id, now=now)
        self._driver.carry_out()
        if self._listener is not None and ticket is not None and granted_at is not None:
            fields: dict[str, object] = {"ticket": ticket_id, "held": now - granted_at}
            self._listener.emit("slot.released", now, ticket.scopes[-1], fields)

    # -- which tickets belong to a session -----------------------------------------------------

    def add(self, session: str, ticket_id: str) -> None:
        """Release this ticket together with the session."""
        self._by_session.setdefault(session, {})[ticket_id] = None

    def forget(self, session: str, ticket_id: str) -> None:
        """Stop tracking a ticket that was released on its own."""
        self._run_owner.pop(ticket_id, None)
        tickets = self._by_session.get(session)
        if tickets is not None:
            tickets.pop(ticket_id, None)
            if not tickets:
                del self._by_session[session]

    def session_ticket(self, session: str) -> str | None:
        """Return the ticket of a session that was acquired by name, or whose name is its ticket, as an attempt's is."""
        ticket_id = SESSION_PREFIX + session
        if ticket_id in self._by_session.get(session, ()):
            return ticket_id
        ticket = self._governor.ticket_of(session)
        return session if ticket is not None and SESSIONS in ticket.scopes else None

    def owners(self) -> dict[str, str]:
        """Return the session of each ticket, for a snapshot."""
        return {ticket_id: session for session, tickets in self._by_session.items() for ticket_id in tickets}

    def restore(self, tickets: Iterable[Ticket], owners: Mapping[str, str]) -> None:
        """Track the slots of a snapshot: they can be released by their name, or with their session."""
        for ticket in tickets:
            owner = owners.get(ticket.id)
            if owner is None and ticket.id.startswith(SESSION_PREFIX):
                owner = ticket.id.removeprefix(SESSION_PREFIX)
            elif owner is None and ticket.parent is not None:
                owner = ticket.parent.removeprefix(SESSION_PREFIX)
            if owner is not None:
                self.add(owner, ticket.id)
                if ticket.id.startswith(RUN_PREFIX):
                    self._run_owner[ticket.id] = owner
