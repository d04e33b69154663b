"""The driver of a Governor: whose grant is whose, and what happens to one that nobody waits for."""

import pytest

from paceline.core import Governor, GovernorSettings, Granted, Ticket
from paceline.core.signals import PlatformLimit
from paceline.limiter import Limiter, Slot
from paceline.limiter.governor_driver import GovernorDriver, namespace_of
from paceline.testing import VirtualClock


def driver_with(limit: int) -> tuple[Governor, GovernorDriver]:
    clock = VirtualClock()
    governor = Governor(GovernorSettings(limits={"runs": limit}), now=clock.now())
    return governor, GovernorDriver(governor, clock=clock, usage={})


@pytest.mark.parametrize(
    ("ticket_id", "namespace"),
    [("slot:1", "slot"), ("outside:slot:1", "outside"), ("slot-build-7-1", ""), ("slot", ""), ("", ""), (":1", "")],
)
def test_the_namespace_of_a_ticket_ends_at_its_first_colon(ticket_id: str, namespace: str) -> None:
    assert namespace_of(ticket_id) == namespace


def test_a_grant_goes_to_the_subscriber_of_its_namespace_alone() -> None:
    governor, driver = driver_with(1)
    received: dict[str, list[str]] = {"slot": [], "": []}
    driver.subscribe("slot", lambda granted: received["slot"].append(granted.ticket_id))
    driver.subscribe("", lambda granted: received[""].append(granted.ticket_id))
    governor.request(Ticket("first", ("runs",)), now=0.0)
    for ticket_id in ("slot:1", "slot-build-7-1"):
        governor.request(Ticket(ticket_id, ("runs",)), now=0.0)
    driver.call(governor.release, "first")
    driver.call(governor.release, "slot:1")
    assert received == {"slot": ["slot:1"], "": ["slot-build-7-1"]}


def test_a_grant_that_nobody_subscribed_to_is_released() -> None:
    governor, driver = driver_with(1)
    governor.request(Ticket("first", ("runs",)), now=0.0)
    governor.request(Ticket("stranger:1", ("runs",)), now=0.0)
    driver.call(governor.release, "first")
    assert not governor.is_held("stranger:1")


async def test_a_limiter_leaves_the_grants_of_a_host_named_slot_to_others() -> None:
    """Attempts are named after their host, and a host may be named `slot-1`."""
    governor, driver = driver_with(1)
    granted: list[Granted] = []
    driver.subscribe("", granted.append)
    limiter = Limiter.over(driver)
    slot = await limiter.acquire("umans")
    governor.request(Ticket("slot-1", ("runs",), leased=False), now=0.0)
    slot.release()
    assert [grant.ticket_id for grant in granted] == ["slot-1"]
    assert governor.is_held("slot-1")
    governor.release("slot-1", now=0.0)
    assert isinstance(limiter.try_acquire("umans"), Slot)
    await limiter.aclose()


def test_a_detected_platform_limit_is_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    limiter = Limiter(limits={"umans": 8}, clock=VirtualClock())
    limiter.report("umans", PlatformLimit(limit=4, in_use=4))
    assert [record.message for record in caplog.records if record.name.startswith("paceline")] == [
        "umans: the provider's own limit is 4; the limit is 4 now, it was 8"
    ]
