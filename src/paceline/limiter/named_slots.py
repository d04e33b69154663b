"""Slots that are acquired and released by a name of the caller's: whole sessions, and runs of a session.

Each is held until it is released, for the limiter lives in the process of its callers. A session that has been silent
for five minutes is named to those that find no place. Those of a process before have a lease: they are lost
unless they are acquired again.

Here: which tickets belong to which session. Never here: waiting; a named slot is granted at once or refused.
"""

import logging
import math
from collections.abc import Iterable, Mapping

from paceline.core import Deferred, Ticket
from paceline.core.values.scopes import RUNS, SESSIONS, path_scopes
from paceline.core.values.validation import check_name
from paceline.errors import CapacityError, MaxRunsExceeded, MaxSessionsExceeded, TicketConflict
from paceline.limiter.governor_driver import GovernorDriver

log = logging.getLogger("paceline.limiter")

SESSION_PREFIX = "session:"
RUN_PREFIX = "run:"
SILENT_SECONDS = 300.0
"""How long a session is silent before it is reported: as long as an unrenewed lease lasts."""
MOST_NAMED = 3
"""Silent sessions that an error names: enough to find the cause, and short enough to read."""


class NamedSlots:
    """The tickets of each session, whether or not the session itself has a slot."""

    def __init__(self, driver: GovernorDriver) -> None:
        self._driver = driver
        self._governor = driver.governor
        self._by_session: dict[str, dict[str, None]] = {}
        self._run_owner: dict[str, str] = {}
        self._logged_at = -math.inf
        self._heard_at: dict[str, float] = {}
        """When each session was last acquired, or one of its runs began or ended."""

    def acquire_session(self, session: str, scope: str | None) -> None:
        """Take a slot for a whole session, or raise `MaxSessionsExceeded`. No-op for one that has it."""
        ticket_id = SESSION_PREFIX + check_name(session, "session")
        scopes = (SESSIONS, *(path_scopes(scope) if scope is not None else ()))
        self._acquire(Ticket(ticket_id, scopes, leased=False), session, MaxSessionsExceeded)

    def acquire_run(self, session: str, run: str, scope: str | None) -> None:
        """Take a slot for one run of a session, or raise `MaxRunsExceeded`. No-op for one that has it."""
        ticket_id = RUN_PREFIX + check_name(run, "run")
        owner = self._run_owner.get(ticket_id, check_name(session, "session"))
        if owner != session:
            raise TicketConflict(f"run {run!r} belongs to session {owner!r}; choose another id for session {session!r}")
        scopes = (RUNS, *(path_scopes(scope) if scope is not None else ()))
        parent = self.session_ticket(session)
        self._acquire(Ticket(ticket_id, scopes, parent=parent, leased=False), session, MaxRunsExceeded)
        self._run_owner[ticket_id] = session

    def _acquire(self, ticket: Ticket, session: str, error: type[CapacityError]) -> None:
        driver = self._driver
        if driver.is_closed:
            raise CapacityError("the limiter is closed")
        if ticket.id in self._by_session.get(session, ()):
            if self._governor.renew(ticket.id, now=driver.now()):  # one from before a restart has found its holder
                self._heard_at[session] = driver.now()
                return
            self._release(ticket.id)  # too late: another ticket has its places, or is about to get them
            self.forget(session, ticket.id)
        verdict = self._governor.try_request(ticket, now=driver.now())
        if not isinstance(verdict, Deferred):
            self.add(session, ticket.id)
        driver.carry_out()
        if isinstance(verdict, Deferred):
            raise error(verdict.detail + self._silence())
        if driver.listener is not None:
            fields: dict[str, object] = {"ticket": ticket.id, "waited": verdict.waited}
            driver.listener.emit("slot.granted", verdict.granted_at, ticket.scopes[-1], fields)

    def _silence(self) -> str:
        """Return which sessions hold their slots although they are silent for long, and log it now and then.

        They are not ended: nobody but their owner knows whether they are over.
        """
        now = self._driver.now()
        silent = sorted((at, session) for session, at in self._heard_at.items() if self._is_silent(session, now - at))
        if not silent:
            return ""
        named = ", ".join(f"{session!r:.80} ({now - at:.0f} s)" for at, session in silent[:MOST_NAMED])
        more = f" and {len(silent) - MOST_NAMED} more" if len(silent) > MOST_NAMED else ""
        found = f"silent: {named}{more}; release_session frees the place of one that is over"
        if now - self._logged_at >= SILENT_SECONDS:
            log.warning("sessions hold their slots, %s", found)
            self._logged_at = now
        return f"; {found}"

    def _is_silent(self, session: str, seconds: float) -> bool:
        own = SESSION_PREFIX + session
        is_alone = seconds > SILENT_SECONDS and set(self._by_session[session]) == {own}
        return is_alone and self._governor.granted_at(own) is not None

    def release_run(self, run: str) -> None:
        """Release a run's slot. Idempotent."""
        ticket_id = RUN_PREFIX + check_name(run, "run")
        self.forget(self._run_owner.get(ticket_id, ""), ticket_id)
        self._release(ticket_id)

    def release_session(self, session: str) -> None:
        """Release the slots of all runs of the session, and then its own. Idempotent."""
        own = SESSION_PREFIX + check_name(session, "session")
        self._heard_at.pop(session, None)
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
        listener = self._driver.listener
        if listener is not None and ticket is not None and granted_at is not None:
            listener.emit("slot.released", now, ticket.scopes[-1], {"ticket": ticket_id, "held": now - granted_at})

    # -- which tickets belong to a session -----------------------------------------------------

    def add(self, session: str, ticket_id: str) -> None:
        """Release this ticket together with the session."""
        self._by_session.setdefault(session, {})[ticket_id] = None
        self._heard_at[session] = self._driver.now()

    def forget(self, session: str, ticket_id: str) -> None:
        """Stop tracking a ticket that was released on its own."""
        self._run_owner.pop(ticket_id, None)
        tickets = self._by_session.get(session)
        if tickets is not None:
            tickets.pop(ticket_id, None)
            self._heard_at[session] = self._driver.now()
            if not tickets:
                del self._by_session[session], self._heard_at[session]

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
