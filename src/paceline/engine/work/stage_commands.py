"""The commands of a plan that run beside its agents: setup, check and delivery, as sessions of a host.

They run under the same supervisors as sessions, so they outlive a crash of the engine, have a time limit, and leave no
process behind.
"""

import msgspec
from msgspec.structs import replace

from paceline.agents import Task, load_agent
from paceline.engine.session.live_session import STOPPED_EARLY
from paceline.executors.interface import Handle, SessionState, printed_tail
from paceline.hosts.messages import SessionOrder
from paceline.settings.plan_file import environment_rules
from paceline.store import Campaign, CheckRound, Unit

SETUP_SECONDS = 1800.0
"""How long a setup may take: installing the dependencies of a large repository takes minutes."""
DELIVERY_SECONDS = 600.0
"""How long a delivery may take: it pushes a branch and calls a web service."""
CHECK_TICKETS = "check"
"""The namespace of the tickets of checks and setups."""
CANNOT_RUN = (126, 127)
"""Exit codes of a shell for a command that cannot be run or was not found."""
TOO_LONG = 124
"""The exit code of a command that reached its time limit, as timeout(1) reports it: its own may even be 0."""


class CommandEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended. `reason` says why, if its exit code does not.

    `could_not_start`: the plan names a command that cannot be run here. `was_lost`: it was ended from outside, for
    example by a restart of the machine. Neither says anything about the work. A command that took too long does.
    """

    exit_code: int | None
    seconds: float
    tail: str
    reason: str | None = None
    could_not_start: bool = False
    was_lost: bool = False
    has_begun: bool = True
    """False for a command that was lost before anybody saw it run, such as one that its host never got."""

    @property
    def has_passed(self) -> bool:
        return self.reason is None and self.exit_code == 0

    @property
    def has_judged(self) -> bool:
        """Whether the command did its work, so that its end says something about the unit."""
        return not (self.could_not_start or self.was_lost)

    @property
    def last_line(self) -> str:
        """The last line of its output: programs name the cause of an error there."""
        return self.tail.rpartition("\n")[2].strip() or "no output"

    @property
    def round(self) -> CheckRound:
        return CheckRound(exit_code=self.exit_code, seconds=self.seconds, tail=self.tail, reason=self.reason)


def command_order(
    attempt_id: str,
    command: tuple[str, ...],
    unit: Unit,
    campaign: Campaign,
    *,
    cwd: str,
    timeout: float,
    key_variables: frozenset[str],
) -> SessionOrder:
    """Return the command for a unit as a session. It has no account, and so no key and no login variables."""
    result = unit.result
    places = {"branch": result.branch, "base": result.base, "commit": result.commit, "workspace": result.workspace}
    for name, value in places.items():
        command = tuple(part.replace(f"{{{name}}}", value or "") for part in command)
    task = Task(
        unit_id=unit.id,
        attempt_id=attempt_id,
        prompt="",
        cwd=cwd,
        model=campaign.model,
        command=command,
        env=campaign.env | port_variable(unit),
    )
    rules = environment_rules(campaign, key_variables)
    return SessionOrder(profile=load_agent("command"), task=task, rules=rules, timeout=timeout, is_command=True)


def port_variable(unit: Unit) -> dict[str, str]:
    """Return the variable with the first of the ports that only this workspace uses."""
    return {} if unit.result.port_base is None else {"PACELINE_PORT_BASE": str(unit.result.port_base)}


def read_end(handle: Handle, now: float, *, limit_seconds: float) -> CommandEnd | None:
    """Return how the command ended, or None while it runs. The limit is the one that it was started with."""
    state = handle.state()
    if not state.is_over:
        return None
    seconds = max(0.0, (state.ended_at or now) - (state.started_at or now))
    was_lost = state.phase == "lost" or state.cause in ("stopped", "terminated") or state.message == STOPPED_EARLY
    end = CommandEnd(exit_code=state.shell_code, seconds=round(seconds, 3), tail=printed_tail(handle))
    if was_lost:
        has_begun = state.started_at is not None
        return replace(end, exit_code=None, reason="it was ended from outside", was_lost=True, has_begun=has_begun)
    if state.cause == "timed_out":
        return replace(end, exit_code=TOO_LONG, reason=f"it did not end within {_duration(limit_seconds)}")
    problem = _start_problem(state)
    return end if problem is None else replace(end, reason=problem, could_not_start=True)


def _start_problem(state: SessionState) -> str | None:
    if state.phase == "not_started":
        return f"it could not be started: {state.message or 'no reason'}"
    if state.shell_code in CANNOT_RUN:
        return f"it could not be run (exit code {state.shell_code})"
    return None


def _duration(seconds: float) -> str:
    return f"{seconds:g} s" if seconds < 60 or seconds % 60 else f"{seconds / 60:g} min"
