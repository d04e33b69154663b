"""A session that any machine can start: everything but what only that machine has, its environment and its files."""

import math
from collections.abc import Mapping

import msgspec

from paceline.agents import AgentProfile
from paceline.agents.account import Account, GatewayAddress
from paceline.agents.cli_configuration import refuse_billing
from paceline.agents.launch import MakeEnvironment, Task, prepare_session
from paceline.agents.session_environment import EnvironmentRules, session_environment
from paceline.executors.interface import Launch


class SessionOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One session, or one command of a plan, to start."""

    profile: AgentProfile
    task: Task
    account: Account | None = None
    rules: EnvironmentRules = EnvironmentRules()
    timeout: float | None = None
    stall: float | None = None
    gateway: GatewayAddress | None = None
    """Where it makes its calls if its account says so. To a worker it goes with the key of that account alone, and the
    worker puts its own way to the leader in place of the URL."""
    output: str | None = None
    """The file that the plan expects, which must have been written since `begun_at`."""
    begun_at: float | None = None
    is_command: bool = False
    """Whether it is a setup, a check or a delivery of the plan, whose output is recorded as a terminal shows it."""

    @property
    def attempt_id(self) -> str:
        return self.task.attempt_id

    def launch(
        self,
        environ: Mapping[str, str],
        *,
        start_by: float = math.inf,
        make_environment: MakeEnvironment = session_environment,
    ) -> Launch:
        """Return what an executor of this machine is to start.

        Raise `InvalidInput` if it cannot be started, and `WouldBillKey` if the CLI's own configuration would bill a key
        that the account does not allow.
        """
        task, profile, account = self.task, self.profile, self.account
        run = prepare_session(profile, task, account, environ, self.gateway, self.rules, make_environment)
        if not self.is_command:
            refuse_billing(profile, account, run, self.rules, model=task.model)
        return Launch(
            attempt_id=task.attempt_id,
            argv=run.argv,
            env=run.env,
            cwd=run.cwd,
            stdin=run.stdin,
            timeout=self.timeout,
            terminal=not self.is_command and profile.stream == "screen",
            stall=self.stall,
            start_by=start_by,
            merged=self.is_command,
        )
