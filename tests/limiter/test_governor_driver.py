"""The driver of a Governor: whose grant is whose, and what happens to one that nobody waits for."""

import asyncio

import pytest

from paceline import Event, Limiter
from paceline.core import Governor, GovernorSettings, Granted, Ticket
from paceline.core.signals import PlatformLimit, RateLimited
from paceline.limiter import Slot
from paceline.limiter.governor_driver import LOOK_AGAIN_SECONDS, GovernorDriver, namespace_of
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


async def test_a_lost_wake_up_is_logged_and_made_up_for_within_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    # given a call that waits for the end of a pause, whose wake-up is lost
    clock = VirtualClock()
    governor = Governor(now=clock.now())
    limiter = Limiter.over(GovernorDriver(governor, clock=clock, usage={}))
    limiter.report("umans", RateLimited(retry_after=5.0))
    call = asyncio.create_task(limiter.acquire("umans"))
    await clock.advance(1.0)
    governor.ledger.scope("umans").wake_at = None

    # when a minute passes
    await clock.advance(90.0)

    # then it is let in, and the log has an error
    assert (await call).waited <= 5.0 + LOOK_AGAIN_SECONDS
    errors = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert errors == ["1 tickets waited without a next check: please report this; the queue was woken"]
    await limiter.aclose()


async def test_a_wait_for_a_slot_or_a_person_is_no_lost_wake_up(caplog: pytest.LogCaptureFixture) -> None:
    # given calls that wait for the slot of another, and for a person
    clock = VirtualClock()
    governor = Governor(GovernorSettings(limits={"umans": 1}, slot_timeout=86_400.0), now=clock.now())
    limiter = Limiter.over(GovernorDriver(governor, clock=clock, usage={}))
    governor.hold("openai", "by hand", now=clock.now())
    slot = await limiter.acquire("umans")
    calls = [asyncio.create_task(limiter.acquire(scope)) for scope in ("umans", "openai")]

    # when an hour passes
    await clock.advance(3_600.0)

    # then they wait, and nothing is logged
    assert [call.done() for call in calls] == [False, False]
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
    slot.release()
    await calls[0]
    await limiter.aclose()
    await asyncio.gather(*calls, return_exceptions=True)


async def test_an_event_that_nobody_has_collected_is_no_lost_wake_up(caplog: pytest.LogCaptureFixture) -> None:
    # given a call that waits for the place of a session, which is held until it is released, and an event to collect
    clock = VirtualClock()
    governor = Governor(GovernorSettings(limits={"umans": 1}), now=clock.now())
    limiter = Limiter.over(GovernorDriver(governor, clock=clock, usage={}))
    limiter.acquire_session("s1", scope="umans")
    call = asyncio.create_task(limiter.acquire("umans"))
    await clock.advance(1.0)
    for limit in (3, 2):  # the second one is an event
        governor.set_limit("openai", limit, now=clock.now())

    # when the driver checks its waiters
    await clock.advance(600.0)

    # then nothing is logged
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
    limiter.release_session("s1")
    (await call).release()
    await limiter.aclose()


# -- Events reach `on_event` in their order, once --


async def test_events_come_in_order_also_when_a_listener_makes_more_happen() -> None:
    seen: list[tuple[str, str | None]] = []

    def listen(event: Event) -> None:
        seen.append((event.name, event.scope))
        if event.name == "scope.paused" and event.scope == "umans":
            limiter.report_rate_limit("other", retry_after=5.0)

    limiter = Limiter(limits={"umans": 4}, on_event=listen, clock=VirtualClock())
    slot = await limiter.acquire("umans")
    slot.rate_limited(retry_after=1.0)
    assert seen == [
        ("slot.granted", "umans"),
        ("scope.paused", "umans"),
        ("scope.limit_reduced", "umans"),
        ("scope.paused", "other"),
    ]


async def test_a_slot_ends_with_one_event() -> None:
    ends: list[tuple[str, object]] = []
    clock = VirtualClock()

    def listen(event: Event) -> None:
        if event.name in ("slot.released", "slot.reclaimed"):
            ends.append((event.name, event.fields["ticket"]))

    limiter = Limiter(limits={"umans": 3}, on_event=listen, clock=clock)
    async with limiter.slot("umans", session="s1") as ended_by_name:
        limiter.release_session("s1")
    forgotten = await limiter.acquire("umans")
    await clock.advance(1000.0)
    forgotten.release()
    assert ends == [("slot.released", ended_by_name.id), ("slot.reclaimed", forgotten.id)]
