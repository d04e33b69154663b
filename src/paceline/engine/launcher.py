"""The launch of sessions: from a claimed unit to a running agent process, and back to one that already runs."""

from collections.abc import Callable, Mapping

import msgspec

from paceline.agents import AgentProfile
from paceline.agents.account import Account
from paceline.agents.cli_configuration import refuse_billing
from paceline.agents.launch import Task, prepare_session
from paceline.agents.session_environment import EnvironmentMemory
from paceline.core import Ticket
from paceline.engine.background_jobs import BackgroundJobs
from paceline.engine.leader_lease import LeaderLease
from paceline.engine.session import LiveSession
from paceline.engine.settings import EngineSettings
from paceline.engine.stage_commands import port_variable
from paceline.engine.unit_results import this_host
from paceline.executors import Executor, Handle, Launch
from paceline.plans.environment_rules import environment_rules
from paceline.store import Campaign, Unit


class Launcher:
    """Starts the sessions of one engine, with its agent profiles and its environment, while it leads."""

    def __init__(
        self,
        executor: Executor,
        settings: EngineSettings,
        agents: Callable[[str], AgentProfile],
        environ: Mapping[str, str],
        jobs: BackgroundJobs,
        lead: LeaderLease,
    ) -> None:
        self.executor = executor
        self.jobs = jobs
        self.lead = lead
        self.settings = settings
        self._key_variables = settings.key_variables
        self._agents = agents
        self.environ = dict(environ)
        self._environments = EnvironmentMemory()

    def start(
        self, unit: Unit, campaign: Campaign, account: Account | None, ticket: Ticket, note: str = ""
    ) -> LiveSession:
        """Start a session for a claimed unit. Raises `InvalidInput` if nothing can be run.

        `note` is what the agent must know besides its task.
        """
        profile = self._agents(campaign.agent)
        launch = self._launch_of(with_note(unit, note), campaign, account, profile)
        self.lead.check()
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
            tz=self.settings.tz,
        )

    def _launch_of(self, unit: Unit, campaign: Campaign, account: Account | None, profile: AgentProfile) -> Launch:
        """Return what the executor is to start. A conversation that had begun is resumed where the agent can.

        Raises `WouldBillKey` if the CLI's own configuration would bill a key that the account does not allow.
        """
        assert unit.attempt_id is not None
        settings = self.settings
        conversation_id = unit.conversation_id if profile.can_resume and self._is_here(unit) else None
        task = Task(
            unit_id=unit.id,
            attempt_id=unit.attempt_id,
            prompt=_prompt_of(unit, profile, conversation_id),
            cwd=unit.spec.cwd,
            model=campaign.model,
            conversation_id=conversation_id,
            command=campaign.command,
            permissions=permissions_of(campaign, profile),
            args=campaign.args,
            env=campaign.env | port_variable(unit) | _check_variable(unit),
        )
        rules = environment_rules(campaign, self._key_variables)
        make = self._environments.session_environment
        run = prepare_session(profile, task, account, self.environ, settings.gateway, rules, make)
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
            start_by=self.lead.trusted_until,
        )

    def _is_here(self, unit: Unit) -> bool:
        """Return whether the conversation of the unit is on this machine: agents keep their transcripts there."""
        return self.lead.fleet is None or unit.result.host in (None, this_host())


def permissions_of(campaign: Campaign, profile: AgentProfile) -> str | None:
    """Return the campaign's permissions. In a worktree of its own an agent may edit, unless the plan says otherwise."""
    is_own = campaign.workspace is not None and "edit" in profile.permissions
    return campaign.permissions or ("edit" if is_own else None)


def with_note(unit: Unit, note: str) -> Unit:
    """Return the unit with a note for its agent before the next prompt."""
    if not note:
        return unit
    feedback = "\n".join(part for part in (note, unit.result.feedback) if part)
    return msgspec.structs.replace(unit, result=msgspec.structs.replace(unit.result, feedback=feedback))


def _prompt_of(unit: Unit, profile: AgentProfile, conversation_id: str | None) -> str:
    """Return the prompt: the feedback of a failed check goes into the conversation, or follows the task."""
    feedback = unit.result.feedback
    if conversation_id is not None:
        return feedback or profile.resume_prompt
    return f"{unit.spec.prompt}\n\n{feedback}" if feedback and profile.start else unit.spec.prompt


def _check_variable(unit: Unit) -> dict[str, str]:
    """Return the output of the last check after it failed, for agents that cannot resume a conversation."""
    checks = unit.result.checks
    return {"PACELINE_CHECK_OUTPUT": checks[-1].tail} if checks and unit.result.feedback else {}
