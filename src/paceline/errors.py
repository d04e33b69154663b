"""Every error Paceline raises on purpose.

    PacelineError
     ├─ CapacityError            the answer is "not now" (or "no longer")
     │   ├─ MaxSessionsExceeded  .code == "max_sessions_exceeded"
     │   ├─ MaxRunsExceeded      .code == "max_runs_exceeded"
     │   ├─ SlotTimeout          a wait ran out; the ticket has left the queue
     │   └─ SlotLost             the lease was not renewed in time
     ├─ EngineBusy               another engine runs this home
     │   └─ LeadLost             this engine led, and does not any more
     ├─ DaemonError              the daemon refused a client's call, or failed
     │   └─ DaemonUnreachable    no daemon answers, or it cannot serve the call now
     ├─ StoreError               the store cannot do this; what was committed is safe
     │   ├─ StoreBusy            another process holds it; try again
     │   ├─ StoreFull            no room left on the disk
     │   ├─ StoreDamaged         the database is not readable as one
     │   ├─ StoreGone            the database was deleted or replaced while it was in use
     │   ├─ StoreUnreachable     the database server does not answer; it is asked again
     │   ├─ StoreTooNew          written by a newer Paceline
     │   └─ StoreTooOld          written by a version that was never released
     ├─ ExecutorError            a session cannot be started; none was
     │   ├─ AttemptInUse         this attempt was started before
     │   └─ SpoolError           the spool cannot be written
     │       └─ NoRoomForSession the machine has no disk space, open files or processes left for it
     ├─ WorkspaceError           the workspace of a unit cannot be made or used; .is_campaigns
     │   ├─ UnfitHost            another host cannot make it; others may
     │   ├─ WorkspaceLost        its folder and its branch are gone
     │   └─ UncommittedWork      removing it would lose work that is in no branch
     ├─ HostLost                 a host was silent for so long that everything on it has ended
     ├─ LinkDown                 no leader answers a worker; it asks again
     ├─ NotJoined                the leader does not know this joining of a worker; it joins again
     ├─ Refused                  the leader refuses a worker for good
     │   ├─ HostTaken            its host has another worker
     │   └─ VersionMismatch      it speaks another protocol
     ├─ LaunchFailed             a worker cannot be started on its host, or its host cannot be asked
     └─ InvalidInput             the caller must change the call; nothing was changed
         ├─ InvalidLimit         a limit that is not a whole number >= 1, or none
         ├─ InvalidDuration      a cooldown, pause or time-out that is not a duration
         ├─ InvalidScope         a malformed scope name
         │   └─ UnresolvedModel  models have caps, and the ticket names neither account nor model
         ├─ TicketConflict       an id that is already in use for something else
         ├─ UnknownName          no campaign, unit, account or agent has this name
         ├─ IllegalStep          the state of a unit does not allow this
         ├─ WouldBillKey         a session would bill a key that its account does not allow; it was not started
         ├─ MistakesFound        a file with mistakes: all of them, each with its location
         │   ├─ InvalidSettings  in paceline.toml, a PACELINE_* variable or a flag
         │   └─ InvalidPlan      in a plan file, or in a file that its units come from
         └─ InvalidSnapshot      a snapshot that this version cannot read

Errors of other libraries are converted to these where they enter. Data from outside (a usage source, a header, an
agent's output) never raises: data that cannot be read counts as *unknown*.
"""

from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from paceline.core import Deferred


class PacelineError(Exception):
    """The base of every error that Paceline raises on purpose."""


class CapacityError(PacelineError):
    """There is no capacity now, or a granted slot is gone."""

    code: ClassVar[str] = "capacity"


class MaxSessionsExceeded(CapacityError):
    """No slot for another session; `str(error)` names the gate that refused it."""

    code = "max_sessions_exceeded"


class MaxRunsExceeded(CapacityError):
    """No slot for another run; `str(error)` names the gate that refused it."""

    code = "max_runs_exceeded"


class SlotTimeout(CapacityError):
    """The wait for a slot ran out; `deferred` is the last refusal."""

    code = "slot_timeout"

    def __init__(self, message: str, deferred: "Deferred | None" = None) -> None:
        super().__init__(message)
        self.deferred = deferred


class SlotLost(CapacityError):
    """The lease ran out: another ticket has the place, or will have it soon."""

    code = "slot_lost"


class EngineBusy(PacelineError):
    """Another engine uses this home folder."""


class LeadLost(EngineBusy):
    """This engine no longer leads: another one does, or its lease has run out. It may neither store nor start."""


class DaemonError(PacelineError):
    """The daemon refused the call, or failed; the message names the daemon and the reason."""


class DaemonUnreachable(DaemonError):
    """No daemon answers at this address, or it cannot serve the call now; try again."""


class StoreError(PacelineError):
    """The store cannot carry out the verb; nothing that was committed is lost."""


class StoreBusy(StoreError):
    """Another process has locked the database; try again."""


class StoreFull(StoreError):
    """The disk is full: free some space and continue."""


class StoreDamaged(StoreError):
    """The file is not a database that Paceline can read; the message names it."""


class StoreGone(StoreError):
    """The file was deleted or replaced while this process used it; nothing more is written to it."""


class StoreUnreachable(StoreError):
    """The database server does not answer. What was committed is safe, and the server is asked again."""


class StoreTooNew(StoreError):
    """The database was written by a newer Paceline."""


class StoreTooOld(StoreError):
    """The database was written by a version that was never released; it is left as it is."""


OUTAGES: Final = (StoreUnreachable, StoreBusy, StoreFull)
"""The errors of a store that pass by themselves."""


class ExecutorError(PacelineError):
    """A session cannot be started, and none was."""


class AttemptInUse(ExecutorError):
    """An attempt runs once, and this one was started before."""


class SpoolError(ExecutorError):
    """The spool cannot be written; the message names the folder and the reason."""


class NoRoomForSession(SpoolError):
    """This machine cannot start a session now: its disk is full, or there are too many open files or processes."""


class WorkspaceError(PacelineError):
    """A workspace cannot be made or used. `is_campaigns`: every unit of the campaign would meet the same error."""

    def __init__(self, message: str, *, is_campaigns: bool = True) -> None:
        super().__init__(message)
        self.is_campaigns = is_campaigns


class WorkspaceLost(WorkspaceError):
    """The folder of the workspace is gone, and so is the branch that it could be made from again."""

    def __init__(self, message: str) -> None:
        super().__init__(message, is_campaigns=False)


class UnfitHost(WorkspaceError):
    """Another host cannot make or set up workspaces of the campaign. Others may, so the campaign keeps away from it."""


class UncommittedWork(WorkspaceError):
    """The workspace holds work that is in no branch, so it was not removed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, is_campaigns=False)


class InvalidInput(PacelineError, ValueError):
    """The value cannot be used; the message names it and what is expected."""


class InvalidLimit(InvalidInput):
    """A limit is a whole number >= 1, or None for unlimited."""


class InvalidDuration(InvalidInput):
    """A duration is a finite number of seconds >= 0."""


class InvalidScope(InvalidInput):
    """A scope is `sessions`, `runs`, `campaign:NAME`, `agent:NAME`, `host:NAME` or `provider[/account[/model]]`."""


class UnresolvedModel(InvalidScope):
    """Models have caps there, so a ticket must name at least its account."""


class TicketConflict(InvalidInput):
    """This id is already in use for another ticket."""


class UnknownName(InvalidInput):
    """Nothing has this name; the message lists the known names."""


class IllegalStep(InvalidInput):
    """The unit's state does not allow this step."""


class WouldBillKey(InvalidInput):
    """A session would bill a key instead of its subscription or login. It was not started."""


class MistakesFound(InvalidInput):
    """Every mistake at once, so that one round of fixes is enough; `mistakes` has one line for each."""

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
    """This version cannot restore the snapshot."""


class HostLost(PacelineError):
    """A host was silent for so long that everything on it has ended."""


class LinkDown(PacelineError):
    """No leader answered a worker. Its sessions continue, and it asks again."""


class NotJoined(PacelineError):
    """The leader does not know this joining of a worker: it has restarted, or another one leads. Join again."""


class Refused(PacelineError):
    """The leader refuses a worker for good: a token that is not valid, another version, a name that is in use."""


class HostTaken(Refused):
    """The host has another worker, which may still run sessions."""


class VersionMismatch(Refused):
    """Worker and engine speak different protocols."""


class LaunchFailed(PacelineError):
    """A host cannot be reached, or its worker cannot be started. The message names the host and the fix."""
