"""The commands of a plan that run beside its agents: setup, check and delivery, as sessions of a host.

They run under the same supervisors as sessions, so they outlive a crash of the engine, have a time limit, and leave no
process behind.
"""

import contextlib

import msgspec

from paceline.agents import load_agent
from paceline.agents.launch import Task
from paceline.engine.conclusion import STOPPED_EARLY
from paceline.engine.hosts.registry import HostRegistry
from paceline.engine.settings import EngineSettings
from paceline.errors import PacelineError
from paceline.executors import Handle, SessionState
from paceline.executors.command_output import printed_tail
from paceline.hosts.session_order import SessionOrder
from paceline.plans.environment_rules import environment_rules
from paceline.store import Campaign, Unit
from paceline.store.unit_result import CheckRound

SETUP_SECONDS = 1800.0
"""How long a setup may take: installing the dependencies of a large repository takes minutes."""
DELIVERY_SECONDS = 600.0
"""How long a delivery may take: it pushes a branch and calls a web service."""
CHECK_TICKETS = "check"
"""The namespace of the tickets of checks and setups."""
CANNOT_RUN = (126, 127)
"""Exit codes of a shell for a command that cannot be run or was not found."""


class CommandEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended. `fault` says why it could not do its work at all; then its exit code means nothing.

    `was_lost`: it was ended from outside, for example by a restart of the machine. That is nobody's fault.
    """

    exit_code: int | None
    seconds: float
    tail: str
    fault: str | None = None
    was_lost: bool = False

    @property
    def has_passed(self) -> bool:
        return self.fault is None and self.exit_code == 0

    @property
    def last_line(self) -> str:
        """The last line of its output: programs name the cause of an error there."""
        return self.tail.rpartition("\n")[2].strip() or "no output"

    @property
    def round(self) -> CheckRound:
        return CheckRound(exit_code=self.exit_code, seconds=self.seconds, tail=self.tail, reason=self.fault)


class StageCommands:
    """Builds the orders of a plan's own commands."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings

    def order(
        self, attempt_id: str, command: tuple[str, ...], unit: Unit, campaign: Campaign, cwd: str, timeout: float
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
        rules = environment_rules(campaign, self._settings.key_variables)
        return SessionOrder(profile=load_agent("command"), task=task, rules=rules, timeout=timeout, is_command=True)


class EndedCommands:
    """Commands whose ends are stored, or that were stopped. Their output is put away once they are over."""

    def __init__(self, hosts: HostRegistry) -> None:
        self._hosts = hosts
        self._handles: list[Handle] = []

    def add(self, handle: Handle) -> None:
        self._handles.append(handle)

    def archive(self) -> None:
        """Put away the output of those that are over. What cannot be put away now is tried again at later passes."""
        waiting, self._handles = self._handles, []
        for handle in waiting:
            with contextlib.suppress(PacelineError, OSError):
                if handle.state().is_over:
                    self._hosts.archive(handle)
                    continue
            self._handles.append(handle)

    @property
    def attempt_ids(self) -> list[str]:
        return [handle.attempt_id for handle in self._handles]


def port_variable(unit: Unit) -> dict[str, str]:
    """Return the variable with the first of the ports that only this workspace uses."""
    return {} if unit.result.port_base is None else {"PACELINE_PORT_BASE": str(unit.result.port_base)}


def read_end(handle: Handle, now: float) -> CommandEnd | None:
    """Return how the command ended, or None while it runs."""
    state = handle.state()
    if not state.is_over:
        return None
    seconds = max(0.0, (state.ended_at or now) - (state.started_at or now))
    was_lost = state.phase == "lost" or state.cause in ("stopped", "terminated") or state.message == STOPPED_EARLY
    return CommandEnd(
        exit_code=None if was_lost else state.shell_code,
        seconds=round(seconds, 3),
        tail=printed_tail(handle),
        fault="it was ended from outside" if was_lost else _fault_of(state),
        was_lost=was_lost,
    )


def _fault_of(state: SessionState) -> str | None:
    if state.phase == "not_started":
        return f"it could not be started: {state.message or 'no reason'}"
    if state.cause == "timed_out":
        return "it did not end within its time limit"
    if state.shell_code in CANNOT_RUN:
        return f"it could not be run (exit code {state.shell_code})"
    return None
