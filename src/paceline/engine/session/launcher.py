"""The launch of sessions: from a claimed unit to a running agent process, and back to one that already runs."""

from collections.abc import Callable

import msgspec

from paceline.agents import AgentProfile
from paceline.agents.account import Account, GatewayAddress, portable_account, split_login
from paceline.agents.launch import Task
from paceline.core import Ticket
from paceline.core.values.fields import fields_of
from paceline.engine.session.live_session import LiveSession
from paceline.engine.session.unit_results import RESTART_NOTE
from paceline.engine.settings import EngineSettings
from paceline.engine.work.stage_commands import port_variable
from paceline.executors import Handle
from paceline.hosts.leader.host import LOCAL
from paceline.hosts.leader.registry import HostRegistry
from paceline.hosts.messages import SessionOrder
from paceline.leadership.lease import LeaderLease
from paceline.settings.campaign_fields import environment_rules
from paceline.store import Campaign, Unit


class Launcher:
    """Starts the sessions of one engine on its hosts, with its agent profiles, while it leads."""

    def __init__(
        self,
        hosts: HostRegistry,
        settings: EngineSettings,
        agents: Callable[[str], AgentProfile],
        lead: LeaderLease,
    ) -> None:
        self.hosts = hosts
        self.lead = lead
        self.settings = settings
        self._key_variables = settings.key_variables
        self._agents = agents

    def start(
        self, unit: Unit, campaign: Campaign, account: Account | None, ticket: Ticket, note: str = ""
    ) -> LiveSession:
        """Start a session for a claimed unit. Raises `InvalidInput` if nothing can be run.

        `note` is what the agent must know besides its task.
        """
        if unit.result.carried.is_restarted:
            note = note or RESTART_NOTE
        order = self._order_of(with_note(unit, note) if note else unit, campaign, account)
        handle = self.hosts.of(unit.account).start(order)
        return self._session(unit, campaign, account, ticket, handle)

    def adopt(self, unit: Unit, campaign: Campaign, account: Account | None, ticket: Ticket) -> LiveSession | None:
        """Return the session that an engine before has started for the unit; None if it never began."""
        handle = self.hosts.of_unit(unit).adopt(self._order_of(unit, campaign, account))
        if handle is None:
            return None
        session = self._session(unit, campaign, account, ticket, handle)
        session.output.is_catching_up = True
        return session

    def _session(
        self, unit: Unit, campaign: Campaign, account: Account | None, ticket: Ticket, handle: Handle
    ) -> LiveSession:
        profile = self._agents(campaign.agent)
        return LiveSession(
            unit=unit,
            campaign=campaign,
            profile=profile,
            account=account,
            ticket=ticket,
            handle=handle,
            is_resumed=self._is_resumed(unit, profile),
            output=self.hosts.of(unit.account).output_of(handle, profile.provider, self.settings.tz),
        )

    def _order_of(self, unit: Unit, campaign: Campaign, account: Account | None) -> SessionOrder:
        """Return what the host is to start. A conversation that had begun is resumed where the agent can."""
        assert unit.attempt_id is not None
        profile = self._agents(campaign.agent)
        conversation_id = unit.conversation_id if self._is_resumed(unit, profile) else None
        env = campaign.env | port_variable(unit) | _check_variable(unit)
        changed = {"permissions": permissions_of(campaign, profile), "env": env}
        task = Task(
            unit_id=unit.id,
            attempt_id=unit.attempt_id,
            prompt=_prompt_of(unit, profile, conversation_id),
            cwd=unit.spec.cwd,
            conversation_id=conversation_id,
            **fields_of(Task, campaign) | changed,
        )
        gateway = self.settings.gateway
        if account is not None and split_login(unit.account or "")[1] != LOCAL:
            account, gateway = self._for_host(account)
        return SessionOrder(
            profile=profile,
            task=task,
            account=account,
            rules=environment_rules(campaign, self._key_variables),
            timeout=campaign.timeout,
            stall=self.settings.stall,
            gateway=gateway,
            output=unit.spec.output,
            begun_at=unit.begun_at or unit.started_at,
        )

    def _for_host(self, account: Account) -> tuple[Account, GatewayAddress | None]:
        """Return the account and the gateway as another machine uses them.

        The folders of its logins are below another home folder. It gets the key of this account alone, and knows its
        own way to the gateway.
        """
        gateway = self.settings.gateway
        if gateway is not None:
            gateway = GatewayAddress("", key=gateway.key_of(account.name)) if account.via_gateway else None
        return portable_account(account, self.hosts.local.user_home), gateway

    def _is_resumed(self, unit: Unit, profile: AgentProfile) -> bool:
        """Return whether the conversation of the unit is continued."""
        return unit.conversation_id is not None and profile.can_resume


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
    return {"PACELINE_CHECK_OUTPUT": checks[-1].output} if checks and unit.result.feedback else {}
