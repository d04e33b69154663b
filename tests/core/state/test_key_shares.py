"""Shares of clients' keys: by weight beside campaigns, and ordered by priority inside."""

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core import Deferred, Governor, GovernorSettings, Granted, Ticket
from paceline.core.state.snapshot import Snapshot
from paceline.core.values.settings import Rate
from paceline.errors import InvalidInput

LONGEST = 5.0
PLACES = 3


class Client:
    """One that keeps so many tickets in line, for as long as the test runs."""

    def __init__(self, group: str, weight: float | None = None, *, backlog: int = 6, priority: int = 0) -> None:
        self.group = group
        self.weight = weight
        self.backlog = backlog
        self.priority = priority
        self.in_line = 0
        self.asked = 0


class Shop:
    """Places that are always full. Slots end one after the other, each client refills its line at once."""

    def __init__(self, clients: list[Client], places: int = PLACES) -> None:
        self.governor = Governor(GovernorSettings(limits={"umans": places}, slot_timeout=1e8), now=0.0)
        self.clients = clients
        self.now = 0.0
        self.live: dict[str, float] = {}
        self.ended: Counter[str] = Counter()
        self.owner: dict[str, Client] = {}

    def refill(self) -> None:
        for client in self.clients:
            while client.in_line < client.backlog:
                client.asked += 1
                client.in_line += 1
                ticket = Ticket(
                    f"{client.group}#{client.asked}",
                    ("umans",),
                    client.group,
                    client.priority,
                    weight=client.weight,
                )
                self.owner[ticket.id] = client
                if isinstance(self.governor.request(ticket, now=self.now), Granted):
                    self.begin(ticket.id)

    def begin(self, ticket_id: str) -> None:
        self.owner[ticket_id].in_line -= 1
        self.live[ticket_id] = self.now

    def run(self, lengths: list[float]) -> None:
        """End the oldest slot after each of these times."""
        self.refill()
        for length in lengths:
            self.now += length
            ended = next(iter(self.live))
            self.count(ended, self.ended)
            del self.live[ended]
            self.governor.release(ended, now=self.now)
            for effect in self.governor.collect():
                if isinstance(effect, Granted):
                    self.begin(effect.ticket_id)
            self.refill()

    def used(self) -> Counter[str]:
        """Return the slot-seconds of each group up to now."""
        used = self.ended.copy()
        for ticket_id in self.live:
            self.count(ticket_id, used)
        return used

    def count(self, ticket_id: str, used: Counter[str]) -> None:
        used[self.owner[ticket_id].group] += self.now - self.live[ticket_id]  # type: ignore[assignment]


weights = st.sampled_from([0.25, 0.5, 1.0, 2.0, 3.0, 8.0])
lengths = st.lists(st.floats(0.1, LONGEST / PLACES), min_size=60, max_size=160)


@given(weights, weights, lengths, st.integers(1, 12))
def test_two_keys_share_by_weight_however_much_one_of_them_sends(
    first: float, second: float, times: list[float], excess: int
) -> None:
    """The bound of the order rule, with the mean and the longest slot: N * (L / w_h + L / w_g)."""
    shop = Shop([Client("key:a", first, backlog=4), Client("key:b", second, backlog=4 * excess)])
    shop.run(times)
    used = shop.used()
    bound = 2 * PLACES * (LONGEST + 1.0) * (1 / first + 1 / second)
    assert abs(used["key:a"] / first - used["key:b"] / second) <= bound


@given(st.integers(-2, 3), weights, lengths)
def test_a_key_shares_with_a_campaign_whose_weight_is_its_power_of_two(
    priority: int, weight: float, times: list[float]
) -> None:
    shop = Shop([Client("docs", backlog=5, priority=priority), Client("key:a", weight, backlog=20)])
    shop.run(times)
    used, other = shop.used(), 2.0**priority
    bound = 2 * PLACES * (LONGEST + 1.0) * (1 / weight + 1 / other)
    assert abs(used["docs"] / other - used["key:a"] / weight) <= bound


def test_a_long_run_ends_at_two_to_one_within_a_percent() -> None:
    shop = Shop([Client("key:a", 2.0, backlog=4), Client("key:b", 1.0, backlog=40)])
    shop.run([0.5 + number % 7 / 10 for number in range(3000)])
    used = shop.used()
    assert used["key:a"] / used["key:b"] == pytest.approx(2.0, rel=0.01)


def test_a_higher_priority_goes_first_in_its_key_and_moves_nobody_else() -> None:
    governor = Governor(GovernorSettings(limits={"umans": 1}, slot_timeout=1e8), now=0.0)
    governor.request(Ticket("holder", ("umans",), "docs"), now=0.0)
    for number, priority in enumerate([0, 3, -1, 3, 7]):
        ticket = Ticket(f"a{priority}#{number}", ("umans",), "key:a", priority, weight=1.0)
        governor.request(ticket, now=1.0 + number)
        governor.request(Ticket(f"b{number}", ("umans",), "key:b", 0, weight=1.0), now=1.5 + number)
    order, holder, now = [], "holder", 10.0
    for _ in range(10):
        now += 1.0
        governor.release(holder, now=now)
        (grant,) = [effect for effect in governor.collect() if isinstance(effect, Granted)]
        holder = grant.ticket_id
        order.append(holder)
    assert [each for each in order if each.startswith("a")] == ["a7#4", "a3#1", "a3#3", "a0#0", "a-1#2"]
    assert [each[0] for each in order].count("b") == 5
    for turn in range(1, 6):
        assert abs(sum(each[0] == "a" for each in order[: 2 * turn]) - turn) <= 1


def test_a_key_that_had_nothing_to_run_returns_without_credit() -> None:
    busy, idle = Client("key:busy", 1.0), Client("key:idle", 1.0)
    shop = Shop([busy], places=1)
    shop.run([1.0] * 500)
    before = shop.used()["key:busy"]
    shop.clients.append(idle)
    shop.run([1.0] * 100)
    used = shop.used()
    assert abs(used["key:busy"] - before - 50) <= 4


@given(lengths, st.integers(1, 50))
def test_shares_of_keys_survive_a_restart(times: list[float], at: int) -> None:
    clients = [Client("key:a", 2.0), Client("key:b", 1.0, priority=1), Client("docs")]
    shop = Shop(clients)
    shop.run(times[:at])
    stored = msgspec.json.encode(shop.governor.snapshot())
    again = Governor.restore(msgspec.json.decode(stored, type=Snapshot), now=shop.now)
    for number in range(10):
        ended, now = next(iter(shop.live)), shop.now + number + 1.0
        shop.live.pop(ended)
        shop.governor.release(ended, now=now)
        again.release(ended, now=now)
        grants = [each for each in shop.governor.collect() if isinstance(each, Granted)]
        assert [each for each in again.collect() if isinstance(each, Granted)] == grants
        for grant in grants:
            shop.begin(grant.ticket_id)


def test_the_limit_of_a_key_keeps_no_place_from_others() -> None:
    """A ticket that is passed over for longer than `ageing` claims places; one that waits for its own key must not."""
    governor = Governor(GovernorSettings(limits={"umans": 2, "key:a": 1}, slot_timeout=1e8, ageing=5.0), now=0.0)
    for number in (1, 2):
        governor.request(Ticket(f"b{number}", ("umans",), "key:b", weight=1.0), now=0.0)
    for number in (1, 2):  # two lanes of one key
        governor.request(Ticket(f"a{number}", ("umans", "key:a"), "key:a", number, weight=100.0), now=1.0)
    governor.release("b1", now=2.0)
    assert [each.ticket_id for each in governor.collect() if isinstance(each, Granted)] == ["a2"]
    now, held = 2.0, "b2"
    for number in range(3, 40):
        now += 1.0
        waiting = governor.request(Ticket(f"b{number}", ("umans",), "key:b", weight=1.0), now=now)
        assert isinstance(waiting, Deferred)
        governor.release(held, now=now)
        held = f"b{number}"
        assert [each.ticket_id for each in governor.collect() if isinstance(each, Granted)] == [held]
    why = governor.why("a1", now=now)
    assert why is not None
    assert (why.reason, why.scope) == ("limit", "key:a")


def test_a_rate_that_is_set_live_holds_only_its_own_key_back() -> None:
    governor = Governor(GovernorSettings(slot_timeout=1e8), now=0.0)
    governor.set_rate("key:a", Rate(rpm=2), now=0.0)
    tickets = [Ticket(f"a{number}", ("umans", "key:a"), "key:a", weight=1.0) for number in range(3)]
    verdicts = [governor.request(ticket, now=1.0) for ticket in tickets]
    assert [type(verdict) for verdict in verdicts] == [Granted, Granted, Deferred]
    assert isinstance(governor.request(Ticket("b", ("umans",), "key:b", weight=1.0), now=1.0), Granted)
    stored = msgspec.json.decode(msgspec.json.encode(governor.snapshot()), type=Snapshot)
    again = Governor.restore(stored, now=2.0)
    assert again.why("a2", now=2.0) == Deferred(
        "a2", "pacing", "key:a", "key:a has started 2 runs in the last minute (rpm 2)", 61.0, 1
    )
    again.set_rate("key:a", None, now=3.0)
    assert [each.ticket_id for each in again.collect() if isinstance(each, Granted)] == ["a2"]


@pytest.mark.parametrize("weight", [0, -1.0, float("nan"), float("inf"), True, "2", 1e9])
def test_a_weight_that_is_no_share_is_refused(weight: object) -> None:
    governor = Governor(now=0.0)
    with pytest.raises(InvalidInput, match="weight must be a number from"):
        governor.request(Ticket("a", ("umans",), "key:a", weight=weight), now=0.0)  # type: ignore[arg-type]
    assert governor.snapshot().groups == ()
