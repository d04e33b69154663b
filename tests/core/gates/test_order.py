"""One order of gates, for deciding and for explaining; and what a new gate needs: one class and one entry in it."""

import msgspec
import pytest

from paceline.core import Deferred, Governor, GovernorSettings, Granted, Snapshot, Ticket
from paceline.core.gates import order
from paceline.core.gates.gate import Explanation, Gate, ScopeView, earliest
from paceline.core.gates.start_meters import SlowStart, StartCap
from paceline.core.values.tickets import Reason

SCOPE = "anthropic/max-1"


class NightRest(Gate):
    """A gate that this package does not know: nobody starts until the morning, but for named tickets."""

    TAG = "night_rest"
    relative_times = ("until",)

    until: float
    exempt: str = ""

    def refuses(self, ticket: Ticket, scope: ScopeView, now: float) -> Reason | None:
        return "pacing" if now < self.until and ticket.id != self.exempt else None

    def explain(self, ticket: Ticket, scope: ScopeView, now: float) -> Explanation:
        return Explanation(f"{scope.name} rests until {self.until:g}", self.until)

    def next_wake(self, scope: ScopeView, now: float, *, has_waiters: bool) -> float | None:
        return earliest(now, self.until) if has_waiters else None


@pytest.fixture
def night_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "GATE_ORDER", (*order.GATE_ORDER, NightRest))


def resting(until: float) -> Governor:
    governor = Governor(GovernorSettings(limits={SCOPE: 4}), now=0.0)
    governor.ledger.scope(SCOPE).put_gate(NightRest(until=until, exempt="nurse"))
    return governor


def stored(governor: Governor) -> bytes:
    return msgspec.json.encode(governor.snapshot())


def restored(data: bytes, now: float) -> Governor:
    return Governor.restore(msgspec.json.decode(data, type=Snapshot), now=now)


def grants(governor: Governor, now: float) -> list[str]:
    return [effect.ticket_id for effect in governor.advance(now=now) if isinstance(effect, Granted)]


@pytest.mark.usefixtures("night_rest")
def test_a_new_gate_refuses_explains_and_wakes_who_waits() -> None:
    governor = resting(until=100.0)
    expected = Deferred("a", "pacing", SCOPE, f"{SCOPE} rests until 100", 100.0, 1)
    assert governor.request(Ticket("a", (SCOPE,)), now=1.0) == expected
    assert governor.why("a", now=2.0) == expected
    assert isinstance(governor.request(Ticket("nurse", (SCOPE,), group="b"), now=3.0), Granted)
    assert governor.next_wakeup() == 33.0  # the sweep of leases comes first
    assert (grants(governor, 99.0), governor.next_wakeup()) == ([], 100.0)
    assert grants(governor, 100.0) == ["a"]


@pytest.mark.usefixtures("night_rest")
def test_a_new_gate_survives_a_restart_and_a_clock_that_is_set_back() -> None:
    governor = resting(until=5000.0)
    governor.request(Ticket("a", (SCOPE,)), now=4000.0)
    again = restored(stored(governor), now=4000.0)
    assert again.why("a", now=4000.0) == governor.why("a", now=4000.0)
    assert again.snapshot() == governor.snapshot()
    moved = again.why("a", now=400.0)
    assert moved is not None
    assert moved.retry_at == 1400.0
    assert grants(again, 1400.0) == ["a"]


def test_a_gate_of_a_newer_version_is_kept_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(order, "GATE_ORDER", (*order.GATE_ORDER, NightRest))
        written = stored(resting(until=100.0))
    older = restored(written, now=1.0)
    assert isinstance(older.request(Ticket("a", (SCOPE,)), now=1.0), Granted)
    older.release("a", now=2.0)
    kept = {scope.name: scope.gates for scope in older.snapshot().scopes}
    assert kept[SCOPE] == {"night_rest": {"until": 100.0, "exempt": "nurse"}}
    monkeypatch.setattr(order, "GATE_ORDER", (*order.GATE_ORDER, NightRest))
    verdict = restored(stored(older), now=3.0).request(Ticket("b", (SCOPE,)), now=3.0)
    assert isinstance(verdict, Deferred)
    assert verdict.detail == f"{SCOPE} rests until 100"


def test_the_gate_that_refuses_first_is_the_one_that_is_explained() -> None:
    governor = Governor(GovernorSettings(), now=0.0)
    governor.request(Ticket("runs", ("campaign:a",)), now=0.0)
    governor.cap_starts("campaign:a", StartCap("one is enough", 500.0, live=1), now=0.0)
    governor.ledger.scope("campaign:a").put_gate(SlowStart(next_at=10.0))
    verdict = governor.request(Ticket("b", ("campaign:a",)), now=1.0)
    detail = "campaign:a admits its waiters one by one after a refusal"
    assert verdict == Deferred("b", "pacing", "campaign:a", detail, 10.0, 1)
    later = governor.why("b", now=10.0)
    assert later == Deferred("b", "pacing", "campaign:a", "one is enough", 500.0, 1)


def test_every_gate_has_a_tag_of_its_own() -> None:
    tags = [kind.TAG for kind in order.GATE_ORDER]
    assert len({*tags, ""}) == len(tags) + 1
