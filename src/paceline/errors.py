"""Every error Paceline raises on purpose.

    PacelineError
     ├─ CapacityError            the answer is "not now" (or "no longer")
     │   ├─ MaxSessionsExceeded  .code == "max_sessions_exceeded"
     │   ├─ MaxRunsExceeded      .code == "max_runs_exceeded"
     │   ├─ SlotTimeout          a wait ran out; the ticket has left the queue
     │   └─ SlotLost             the lease was not renewed in time
     ├─ EngineBusy               another engine runs this home
     ├─ DaemonError              the daemon refused a client's call, or failed
     │   └─ DaemonUnreachable    no daemon answers, or it cannot do it just now
     ├─ StoreError               the store cannot do it; what was committed is safe
     │   ├─ StoreBusy            another process holds it; try again
     │   ├─ StoreFull            no room left on the disk
     │   ├─ StoreDamaged         the database is not readable as one
     │   └─ StoreTooNew          written by a newer Paceline
     ├─ ExecutorError            a session cannot be started; none was
     │   ├─ AttemptInUse         this attempt was started before
     │   └─ SpoolError           the spool cannot be written
     └─ InvalidInput             the caller must change the call; nothing was changed
         ├─ InvalidLimit         a limit that is not a whole number >= 1, or none
         ├─ InvalidDuration      a cooldown, pause or time-out that is no such thing
         ├─ InvalidScope         a malformed scope name
         │   └─ UnresolvedModel  caps per model exist here and the ticket names no model
         ├─ TicketConflict       an id that is already in use for something else
         ├─ UnknownName          no campaign, unit, account or agent of this name
         ├─ IllegalStep          a unit's state does not allow this
         ├─ MistakesFound        a file with mistakes: all of them, each with its place
         │   ├─ InvalidSettings  in paceline.toml, a PACELINE_* variable or a flag
         │   └─ InvalidPlan      in a plan file or in what it takes its units from
         └─ InvalidSnapshot      a snapshot this version cannot read

Errors of other libraries are turned into these at the border. Data from outside (a usage source,
a header, an agent's output) never raises: what cannot be read is *unknown*.
"""

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from paceline.core import Deferred


class PacelineError(Exception):
    """Base of all of them."""


class CapacityError(PacelineError):
    """There is no room now, or the room that was given is gone."""

    code: ClassVar[str] = "capacity"


class MaxSessionsExceeded(CapacityError):
    """No slot for another session; `str(error)` says what holds it."""

    code = "max_sessions_exceeded"


class MaxRunsExceeded(CapacityError):
    """No slot for another run; `str(error)` says what holds it."""

    code = "max_runs_exceeded"


class SlotTimeout(CapacityError):
    """The wait for a slot ran out; `deferred` is what held it in the end."""

    code = "slot_timeout"

    def __init__(self, message: str, deferred: "Deferred | None" = None) -> None:
        super().__init__(message)
        self.deferred = deferred


class SlotLost(CapacityError):
    """The lease ran out: the place is, or soon will be, someone else's."""

    code = "slot_lost"


class EngineBusy(PacelineError):
    """Another engine runs this home."""


class DaemonError(PacelineError):
    """The daemon refused the call, or failed; the message says which daemon, and why."""


class DaemonUnreachable(DaemonError):
    """No daemon answers at this address, or the one that does cannot do it just now; try again."""


class StoreError(PacelineError):
    """The store cannot do what was asked; nothing that was committed is lost."""


class StoreBusy(StoreError):
    """Another process holds the database; try again."""


class StoreFull(StoreError):
    """No room left on the disk: free some and go on."""


class StoreDamaged(StoreError):
    """The file is not a database Paceline can read; the message names it."""


class StoreTooNew(StoreError):
    """The database was written by a newer Paceline."""


class ExecutorError(PacelineError):
    """A session cannot be started; nothing was."""


class AttemptInUse(ExecutorError):
    """An attempt runs once: this one is running, or has been."""


class SpoolError(ExecutorError):
    """The spool cannot be written; the message says where and why."""


class InvalidInput(PacelineError, ValueError):
    """The value cannot be used; the message names it and says what would do."""


class InvalidLimit(InvalidInput):
    """A limit is a whole number >= 1, or None for unlimited."""


class InvalidDuration(InvalidInput):
    """A duration is a finite number of seconds >= 0."""


class InvalidScope(InvalidInput):
    """A scope is `sessions`, `runs`, `campaign:NAME`, `agent:NAME` or `provider[/account[/model]]`."""


class UnresolvedModel(InvalidScope):
    """Caps per model exist for this account, so a ticket must say which model it is for."""


class TicketConflict(InvalidInput):
    """This id is already in use for another ticket."""


class UnknownName(InvalidInput):
    """There is nothing of this name; the message says what there is."""


class IllegalStep(InvalidInput):
    """The unit's state does not allow this step."""


class MistakesFound(InvalidInput):
    """Everything that is wrong, so that one round of mending is enough; `mistakes` has a line for each."""

    def __init__(self, *mistakes: str) -> None:
        super().__init__(*mistakes)
        self.mistakes = mistakes

    def __str__(self) -> str:
        return "\n".join(self.mistakes)


class InvalidSettings(MistakesFound):
    """The settings cannot be used; each mistake names the file and line, the variable or the flag."""


class InvalidPlan(MistakesFound):
    """The plan cannot be used and nothing was started; each mistake names the file and line."""


class InvalidSnapshot(InvalidInput):
    """The snapshot is not one that this version can restore."""
