"""Shares between groups: no hoarded credit, whether a group had nothing to run or was kept out by a gate."""

from collections import Counter, deque

import pytest

from paceline.core import Governor, GovernorSettings, Granted, Ticket
from paceline.core.signals import Overloaded

SLOT_SECONDS = 1.0


class Shop:
    """A few places; slots of a second each, ended in the order they began; groups that keep a ticket in line."""

    def __init__(self, places: int = 1) -> None:
        self.governor = Governor(GovernorSettings(limits={"runs": places}, slot_timeout=1e8), now=0.0)
        self.now = 0.0
        self.asked = 0
        self.holders: deque[str] = deque()

    def ask(self, group: str, scope: str = "umans", priority: int = 0) -> str:
        self.asked += 1
        ticket = Ticket(f"{group}-{self.asked}", ("runs", scope), group, priority)
        if isinstance(self.governor.request(ticket, now=self.now), Granted):
            self.holders.append(ticket.id)
        return ticket.id

    def serve(self, turns: int, refill: dict[str, str]) -> Counter[str]:
        """Let so many slots end, keeping tickets of each group of `refill` in line; how many each group ended."""
        served: Counter[str] = Counter()
        for _ in range(turns):
            for group, scope in refill.items():
                self.ask(group, scope)
            self.now += SLOT_SECONDS
            ended = self.holders.popleft()
            served[ended.split("-")[0]] += 1
            self.governor.release(ended, now=self.now)
            grants = [effect for effect in self.governor.advance(now=self.now) if isinstance(effect, Granted)]
            self.holders.extend(grant.ticket_id for grant in grants)
        return served


def test_a_group_that_had_nothing_to_run_comes_back_without_credit() -> None:
    shop = Shop()
    assert shop.serve(500, {"busy": "umans"}) == {"busy": 500}
    served = shop.serve(100, {"busy": "umans", "idle": "umans"})
    assert abs(served["busy"] - served["idle"]) <= 4, served


def test_a_group_that_was_paused_comes_back_without_credit() -> None:
    shop = Shop()
    shop.serve(20, {"a": "umans", "b": "openai"})
    shop.governor.report("openai", Overloaded(retry_after=500.0), now=shop.now)
    during = shop.serve(490, {"a": "umans"})
    assert during["a"] >= 485
    shop.now += 15.0
    served = shop.serve(100, {"a": "umans", "b": "openai"})
    assert abs(served["a"] - served["b"]) <= 4, served


def test_a_small_group_does_not_make_a_newcomer_starve_a_large_one() -> None:
    """`small` holds one place all along and never waits; what it did not use is nobody's credit."""
    shop = Shop(places=4)
    small = shop.ask("small")
    shop.holders.remove(small)
    for _ in range(6):
        shop.ask("large")
    assert shop.serve(900, {"large": "umans"}) == {"large": 900}
    for _ in range(6):
        shop.ask("newcomer")
    served = shop.serve(100, {"large": "umans", "newcomer": "umans"})
    assert abs(served["large"] - served["newcomer"]) <= 8, served


def test_a_small_group_leaves_no_credit_to_one_that_was_paused() -> None:
    shop = Shop(places=4)
    small = shop.ask("small")
    shop.holders.remove(small)
    for _ in range(6):
        shop.ask("a")
        shop.ask("b", "openai")
    shop.serve(20, {"a": "umans", "b": "openai"})
    shop.governor.report("openai", Overloaded(retry_after=500.0), now=shop.now)
    shop.serve(490, {"a": "umans"})
    shop.now += 15.0
    served = shop.serve(100, {"a": "umans", "b": "openai"})
    assert abs(served["a"] - served["b"]) <= 10, served


def test_a_history_before_a_quiet_time_is_no_debt() -> None:
    shop = Shop()
    shop.serve(300, {"old": "umans"})
    while shop.holders:
        shop.serve(1, {})
    shop.now += 1000.0
    for group in ("first", "second", "old"):
        shop.ask(group)
    served = shop.serve(100, {"second": "umans", "old": "umans"})
    assert abs(served["second"] - served["old"]) <= 4, served


def test_a_newcomer_owes_nothing_for_a_group_that_never_had_to_wait() -> None:
    """`free` uses much where there is no limit; the newcomer waits first where nobody else does, then for a place."""
    shop = Shop()
    for number in range(20):
        shop.governor.request(Ticket(f"free-{number}", ("elsewhere",), "free"), now=0.0)
    for _ in range(3):
        shop.ask("busy")
    shop.serve(1_000, {"busy": "umans"})
    shop.governor.set_limit("openai", 1, now=shop.now)
    shop.governor.request(Ticket("other", ("openai",), "other"), now=shop.now)
    shop.ask("newcomer", "openai")
    shop.governor.release("other", now=shop.now)

    served = shop.serve(100, {"busy": "umans", "newcomer": "openai"})

    assert abs(served["busy"] - served["newcomer"]) <= 8, served


def test_one_level_up_is_twice_the_share() -> None:
    shop = Shop()
    for _ in range(400):
        shop.ask("low", priority=0)
        shop.ask("high", priority=1)
    served = shop.serve(300, {})
    assert abs(served["high"] - 2 * served["low"]) <= 4, served


def test_a_lower_priority_is_no_debt_for_what_was_had_before() -> None:
    shop = Shop()
    for _ in range(400):
        shop.ask("first", priority=3)
        shop.ask("other", priority=0)
    shop.serve(300, {})
    for waiter in shop.governor.snapshot().waiters:
        if waiter.ticket.group == "first":
            shop.governor.cancel(waiter.ticket.id, now=shop.now)
    served = shop.serve(100, {"first": "umans"})
    assert abs(served["first"] - served["other"]) <= 4, served


def test_a_priority_that_is_set_back_has_its_old_share_again() -> None:
    shop = Shop()
    shop.ask("busy")
    for priority in (0, 3, 0):
        shop.governor.cancel(shop.ask("changed", priority=priority), now=shop.now)
    for _ in range(200):
        shop.ask("changed", priority=0)
        shop.ask("busy", priority=0)
    served = shop.serve(100, {})
    assert abs(served["changed"] - served["busy"]) <= 4, served


class Keys:
    """Two accounts with two places each, calls of 80 ms, and clients that call again at once.

    Each second all that wait leave, one by one, and ask at the other account, as calls do that wait in a pool.
    """

    def __init__(self, cooldown: float, weights: dict[str, float]) -> None:
        limits: dict[str, int | None] = {"anthropic/a": 2, "anthropic/b": 2}
        self.governor = Governor(GovernorSettings(limits=limits, cooldowns={"anthropic/*": cooldown}), now=0.0)
        self.weights = weights
        self.accounts: dict[str, str] = {}
        self.ends: dict[str, int] = {}
        self.ended: Counter[str] = Counter()
        self.asked = 0

    def ask(self, key: str, account: str, now: float) -> None:
        self.asked += 1
        scopes = ("runs", "anthropic", f"anthropic/{account}", f"key:{key}")
        ticket = Ticket(f"{key}-{self.asked}", scopes, f"key:{key}", weight=self.weights[key])
        self.accounts[ticket.id] = account
        if isinstance(self.governor.request(ticket, now=now), Granted):
            self.ends[ticket.id] = round(now * 100) + 8

    def run(self, clients: dict[str, int], seconds: int) -> Counter[str]:
        """Return how many calls each key ended."""
        for key, count in clients.items():
            for number in range(count):
                self.ask(key, "ab"[number % 2], 0.0)
        for tick in range(1, seconds * 100):
            now = tick / 100
            for ticket in [ticket for ticket, end in self.ends.items() if end == tick]:
                key = ticket.split("-")[0]
                self.ended[key] += 1
                self.governor.release(ticket, now=now)
                self.ask(key, self.accounts[ticket], now)
                del self.ends[ticket]
            if tick % 100 == 0:
                for ticket in [each.ticket.id for each in self.governor.snapshot().waiters]:
                    self.governor.cancel(ticket, now=now)
                    self.ask(ticket.split("-")[0], "ba"["ab".index(self.accounts[ticket])], now)
            grants = [each for each in self.governor.advance(now=now) if isinstance(each, Granted)]
            self.ends |= {grant.ticket_id: tick + 8 for grant in grants}
        return self.ended


@pytest.mark.parametrize("cooldown", [0.0, 0.35, 2.0])
@pytest.mark.parametrize(("weights", "clients"), [({"x": 1.0, "y": 1.0}, (12, 12)), ({"x": 2.0, "y": 1.0}, (12, 36))])
def test_short_calls_have_their_shares_from_the_first_one_on(
    cooldown: float, weights: dict[str, float], clients: tuple[int, int]
) -> None:
    """A newcomer owes nothing for what others were about to use: the first calls ended after 80 ms, not a second."""
    keys = Keys(cooldown, weights)

    ended = keys.run(dict(zip("xy", clients, strict=True)), seconds=12)

    assert abs(ended["x"] / weights["x"] - ended["y"]) <= 2, ended
