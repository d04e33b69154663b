"""The launch of sessions: from a claimed unit to a running agent process, and back to one that already runs."""

from collections.abc import Callable, Mapping

from paceline.agents import AgentProfile
from paceline.agents.account import Account
from paceline.agents.cli_configuration import refuse_billing
from paceline.agents.launch import Task, prepare_session
from paceline.core import Ticket
from paceline.engine.session import LiveSession
from paceline.engine.settings import EngineSettings
from paceline.executors import Executor, Handle, Launch
from paceline.plans.environment_rules import environment_rules
from paceline.store import Campaign, Unit


class Launcher:
    """Starts sessions in an executor, with the agent profiles and the environment of one engine."""

    def __init__(
        self,
        executor: Executor,
        settings: EngineSettings,
        agents: Callable[[str], AgentProfile],
        environ: Mapping[str, str],
    ) -> None:
        self.executor = executor
        self._settings = settings
        self._agents = agents
        self._environ = environ

    def start(self, unit: Unit, campaign: Campaign, account: Account | None, ticket: Ticket) -> LiveSession:
        """Start a session for a claimed unit. Raises `InvalidInput` if nothing can be run."""
        profile = self._agents(campaign.agent)
        launch = launch_of(unit, campaign, account, profile, self._environ, self._settings)
        return self.adopt(unit, campaign, account, ticket, self.executor.start(launch))

    def adopt(
        self, unit: Unit, campaign: Campaign, account: Account | None, ticket: Ticket, handle: Handle
    ) -> LiveSession:
        """Return the session of a process that runs."""
        return LiveSession(
            unit=unit,
            campaign=campaign,
            profile=self._agents(campaign.agent),
            account=account,
            ticket=ticket,
            handle=handle,
            tz=self._settings.tz,
        )


def launch_of(
    unit: Unit,
    campaign: Campaign,
    account: Account | None,
    profile: AgentProfile,
    environ: Mapping[str, str],
    settings: EngineSettings,
) -> Launch:
    """Return what the executor is to start. A conversation that had begun is resumed where the agent can.

    Raises `WouldBillKey` if the CLI's own configuration would bill a key that the account does not allow.
    """
    assert unit.attempt_id is not None
    conversation_id = unit.conversation_id if profile.can_resume else None
    task = Task(
        unit_id=unit.id,
        attempt_id=unit.attempt_id,
        prompt=unit.spec.prompt if conversation_id is None else profile.resume_prompt,
        cwd=unit.spec.cwd,
        model=campaign.model,
        conversation_id=conversation_id,
        command=campaign.command,
        permissions=campaign.permissions,
        args=campaign.args,
        env=campaign.env,
    )
    rules = environment_rules(campaign, settings.key_variables)
    run = prepare_session(profile, task, account, environ, settings.gateway, rules)
    refuse_billing(profile, account, run, rules, model=campaign.model)
    return Launch(
        attempt_id=unit.attempt_id,
        argv=run.argv,
        env=run.env,
        cwd=run.cwd,
        stdin=run.stdin,
        timeout=campaign.timeout,
        terminal=profile.stream == "screen",
        stall=settings.stall,
    )
