"""Verbs of the Governor that the shells rely on between their own steps."""

from paceline.core import Deferred, Governor, GovernorSettings, Granted, Ticket
from paceline.core.gates.start_meters import StartCap
from paceline.core.signals import RateLimited
from paceline.events import Event


def test_the_events_a_report_makes_name_its_origin() -> None:
    governor = Governor(GovernorSettings(limits={"anthropic": 4}), now=0.0)
    governor.report("anthropic", RateLimited(retry_after=5.0), now=1.0, origin="unit-7")
    assert governor.agenda.effects
    assert {effect.unit for effect in governor.collect() if isinstance(effect, Event)} == {"unit-7"}
    assert not governor.agenda.effects
    governor.advance(now=6.0)
    governor.report("anthropic", RateLimited(retry_after=5.0), now=7.0)
    events = [effect for effect in governor.collect() if isinstance(effect, Event)]
    assert events
    assert {event.unit for event in events} == {None}


def test_time_passing_before_a_report_is_not_its_origins_doing() -> None:
    governor = Governor(GovernorSettings(limits={"anthropic": 4}), now=0.0)
    governor.report("anthropic", RateLimited(retry_after=5.0), now=1.0, origin="unit-7")
    governor.collect()
    assert governor.agenda.next_due == 6.0
    governor.report("openai", RateLimited(retry_after=5.0), now=6.0, origin="unit-8")
    units = {(event.name, event.unit) for event in governor.collect() if isinstance(event, Event)}
    assert ("scope.resumed", None) in units
    assert ("scope.paused", "unit-8") in units


def test_a_granted_ticket_and_its_time_are_known_until_it_is_released() -> None:
    governor = Governor(GovernorSettings(), now=0.0)
    ticket = Ticket("a", ("anthropic",), tokens=5)
    assert (governor.ticket_of("a"), governor.granted_at("a")) == (None, None)
    governor.request(ticket, now=2.0)
    assert (governor.ticket_of("a"), governor.granted_at("a")) == (ticket, 2.0)
    governor.release("a", now=3.0)
    assert (governor.ticket_of("a"), governor.granted_at("a")) == (None, None)


def test_whoever_a_forgotten_cap_kept_out_enters_after_a_restart() -> None:
    governor = Governor(GovernorSettings(), now=0.0)
    governor.request(Ticket("runs", ("campaign:a",)), now=0.0)
    governor.cap_starts("campaign:a", StartCap("one is enough", 500.0, live=1), now=0.0)
    assert isinstance(governor.request(Ticket("waits", ("campaign:a",)), now=1.0), Deferred)
    again = Governor.restore(governor.snapshot(), now=2.0)
    assert [effect.ticket_id for effect in again.collect() if isinstance(effect, Granted)] == ["waits"]
