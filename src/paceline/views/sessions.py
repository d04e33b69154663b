"""Live sessions."""

import msgspec

from paceline.agents.account import split_login
from paceline.engine.session import LiveSession
from paceline.store import Campaign, Unit
from paceline.views.safe_text import printable


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """The session of a running unit. `ending` is the reason why it is being ended, if it is."""

    unit: str
    campaign: str
    attempt: str
    account: str | None
    host: str | None
    """The host that it runs on; null on the machine of the engine."""
    scope: str | None
    agent: str
    model: str | None
    session_id: str | None
    started_at: float | None
    tries: int
    pid: int | None
    ending: str | None


def session_view(session: LiveSession) -> SessionView:
    """Return what people are shown of the session."""
    unit = session.unit
    return SessionView(
        unit=unit.id,
        campaign=unit.campaign,
        attempt=session.handle.attempt_id,
        account=session.account.name if session.account is not None else None,
        host=session.host or None,
        scope=session.scope,
        agent=session.profile.name,
        model=session.campaign.model,
        session_id=session.conversation,
        started_at=unit.started_at,
        tries=unit.counters.attempts,
        pid=session.handle.state().pid,
        ending=None if session.ending is None else printable(session.ending.reason),
    )


def stored_session_view(unit: Unit, campaign: Campaign) -> SessionView:
    """Return what the store knows of the session of a running unit."""
    account, host = split_login(unit.account or "")
    return SessionView(
        unit=unit.id,
        campaign=unit.campaign,
        attempt=unit.attempt_id or "",
        account=account or None,
        host=host or None,
        scope=None,
        agent=campaign.agent,
        model=campaign.model,
        session_id=unit.conversation_id,
        started_at=unit.started_at,
        tries=unit.counters.attempts,
        pid=None,
        ending=None,
    )
