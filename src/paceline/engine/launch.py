"""From a claimed unit to what an executor is asked to start. Values only."""

from collections.abc import Mapping

from paceline.agents import AgentProfile
from paceline.agents.account import Account, GatewayAddress
from paceline.agents.launch import Task, prepare_session
from paceline.executors import Launch
from paceline.store import Campaign, Unit


def launch_order(
    unit: Unit,
    campaign: Campaign,
    account: Account | None,
    profile: AgentProfile,
    environ: Mapping[str, str],
    gateway: GatewayAddress | None,
) -> Launch:
    """A conversation that had begun is resumed where the agent can; `InvalidInput` if nothing can be run."""
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
    )
    run = prepare_session(profile, task, account, environ, gateway)
    return Launch(
        attempt_id=unit.attempt_id,
        argv=run.argv,
        env=run.env,
        cwd=run.cwd,
        stdin=run.stdin,
        timeout=campaign.timeout,
        terminal=profile.stream == "screen",
    )
