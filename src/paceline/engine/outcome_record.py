"""What is stored of a try that is over: for how long a parked unit waits, and whose its conversation is.

Here: values. Never here: the store itself.
"""

import msgspec

from paceline.core.unit_lifecycle import AttemptOutcome, transition_after
from paceline.engine.attempt_outcome import Parking
from paceline.engine.dispatcher import NO_ACCOUNT, Lines
from paceline.engine.session import LiveSession
from paceline.engine.settings import EngineSettings
from paceline.store import OutcomeRecord, Unit


class Settling:
    """From how a try ended to what is stored of it."""

    def __init__(self, settings: EngineSettings, lines: Lines, parking: Parking) -> None:
        self._settings = settings
        self._lines = lines
        self._parking = parking

    def settled(
        self, unit: Unit, outcome: AttemptOutcome, now: float, max_attempts: int | None = None
    ) -> OutcomeRecord:
        policy = self._settings.policy
        if max_attempts is not None:
            policy = msgspec.structs.replace(policy, max_attempts=max_attempts)
        transition = transition_after(unit.counters, outcome, policy, now)
        account = unit.account if unit.conversation_id is not None else None
        return OutcomeRecord(
            unit_id=unit.id,
            fence=unit.fence,
            transition=transition,
            account=account,
            conversation_id=unit.conversation_id,
        )

    def settled_session(self, session: LiveSession, outcome: AttemptOutcome, now: float) -> OutcomeRecord:
        if outcome.ending == "parked":
            outcome = self._parked(session, outcome, now)
        # After a real failure the work begins afresh: what went wrong may lie in the conversation.
        conversation = None if outcome.ending == "failed" else session.conversation
        account = session.account.name if session.account is not None and conversation is not None else None
        record = self.settled(session.unit, outcome, now, session.campaign.max_attempts)
        return msgspec.structs.replace(record, account=account, conversation_id=conversation)

    def _parked(self, session: LiveSession, outcome: AttemptOutcome, now: float) -> AttemptOutcome:
        """Until its windows open; a unit that has not begun may go to the first account that opens."""
        account = session.account.name if session.account is not None else NO_ACCOUNT
        opens_at = self._parking.resume_at(account, session.ticket.scopes, now) or outcome.resume_at
        if session.conversation is None:
            for name in session.campaign.accounts:
                scopes = self._lines.scopes(session.campaign, self._settings.accounts.get(name))
                elsewhere = self._parking.opens_at(scopes, now)
                opens_at = None if elsewhere is None or opens_at is None else min(opens_at, elsewhere)
        spent_it_alone = session.has_answered and session.is_alone_in_fresh_window
        return msgspec.structs.replace(outcome, resume_at=opens_at, opened_window=spent_it_alone)
