"""Starts an interval apart, and nothing else."""

from paceline.core import Deferred, Governor, GovernorSettings, Granted, Ticket
from paceline.core.gates.start_meters import StartSpacing

SCOPE = "umans"


def test_a_run_whose_session_has_ended_does_not_wait_behind_a_paced_start() -> None:
    governor = Governor(GovernorSettings(limits={SCOPE: 1}), now=0.0)
    governor.request(Ticket("runs", ("runs", SCOPE), leased=False), now=0.0)
    governor.ledger.scope(SCOPE).put_gate(StartSpacing(interval=50.0, next_at=100.0, ease_at=1000.0))
    assert isinstance(governor.request(Ticket("start", ("sessions", SCOPE), leased=False), now=1.0), Deferred)
    late = Ticket("late run", ("runs", SCOPE), parent="gone", group="b", leased=False)
    assert isinstance(governor.request(late, now=2.0), Deferred)
    governor.release("runs", now=3.0)
    assert [effect.ticket_id for effect in governor.advance(now=3.0) if isinstance(effect, Granted)] == ["late run"]
