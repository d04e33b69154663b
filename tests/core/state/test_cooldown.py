"""How long a released slot still counts: as long as its account says, also in places that accounts share."""

import pytest

from paceline.core import Governor, GovernorSettings, Granted, Ticket

METERED, SUBSCRIPTION = "openai/work", "openai/plus"


def run(name: str, account: str) -> Ticket:
    return Ticket(name, ("runs", "openai", account, f"{account}/gpt-5"), leased=False)


def cooling_after_release(governor: Governor, account: str) -> list[int]:
    """Return how many places cool in the provider, the account and the model after a slot of the account."""
    assert isinstance(governor.request(run(account, account), now=0.0), Granted)
    governor.release(account, now=1.0)
    statuses = [governor.status(scope, now=1.0) for scope in ("openai", account, f"{account}/gpt-5")]
    return [status.cooling for status in statuses if status is not None]


def settings(**fields: object) -> GovernorSettings:
    limits: dict[str, int | None] = {"openai": 2, METERED: 2, SUBSCRIPTION: 2, "*/*/gpt-5": 2}
    return GovernorSettings(limits=limits, cooldown=0.35, lag_learnt=(METERED,), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("account", "cooling"), [(METERED, [0, 0, 0]), (SUBSCRIPTION, [1, 1, 1])])
def test_a_slot_cools_for_the_time_of_its_own_account(account: str, cooling: list[int]) -> None:
    assert cooling_after_release(Governor(settings(), now=0.0), account) == cooling


@pytest.mark.parametrize("account", [METERED, SUBSCRIPTION])
def test_a_cooldown_that_is_set_for_the_provider_wins(account: str) -> None:
    assert cooling_after_release(Governor(settings(cooldowns={"openai": 1.0}), now=0.0), account) == [1, 1, 1]


def test_a_cooldown_that_is_set_live_for_one_account_holds_in_the_places_that_it_shares() -> None:
    governor = Governor(GovernorSettings(limits={"openai": 2, METERED: 2, f"{METERED}/gpt-5": 2}), now=0.0)
    governor.set_cooldown(METERED, 1.0, now=0.0)
    assert cooling_after_release(governor, METERED) == [1, 1, 1]


def test_calls_of_a_metered_key_follow_each_other_at_once() -> None:
    governor = Governor(settings(), now=0.0)
    for number in range(3):
        governor.request(run(f"r{number}", METERED), now=0.0)
    governor.release("r0", now=0.08)
    assert [effect.ticket_id for effect in governor.advance(now=0.08) if isinstance(effect, Granted)] == ["r2"]
