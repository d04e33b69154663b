"""What is stored beside the units: why each queue waited stays known the day after."""

from paceline.core import Deferred
from paceline.engine.journal import WaitNews
from paceline.events import Event
from paceline.store import StoredEvent
from paceline.testing.engine_harness import NOW, EngineHarness


async def test_what_a_campaign_waited_for_is_in_the_events_once_for_a_reason_that_lasts() -> None:
    async with EngineHarness() as harness:
        harness.add("night", 3, max_sessions=1)

        await harness.run(300.0)

        waits = harness.events("slot.deferred")
        assert [event.at - NOW for event in waits] == [0.0]
        assert waits[0] == Event(
            "slot.deferred",
            NOW,
            "campaign:night",
            None,
            {
                "ticket": waits[0].fields["ticket"],
                "reason": "limit",
                "detail": "campaign:night at its limit (1/1)",
                "retry_at": None,
                "campaign": "night",
                "account": None,
                "host": None,
            },
        )


async def test_passes_in_which_nothing_changes_store_nothing() -> None:
    async with EngineHarness() as harness:
        harness.add("night", 2, max_sessions=1)
        await harness.run(1.0)
        before: list[StoredEvent] = harness.store.events()

        await harness.run(50.0)

        assert harness.store.events() == before


FULL = Deferred("t1", "limit", "sessions", "sessions at its limit (4/4)")
PACED = Deferred("t1", "pacing", "anthropic/max-1", "starts are spaced")


def test_two_reasons_that_alternate_are_one_event_a_minute_each() -> None:
    news = WaitNews()

    told = [(now, *news.take({"docs max-1": PACED if now % 2 else FULL}, float(now)).values()) for now in range(121)]

    assert [each for each in told if each[1:]] == [
        (0, FULL), (1, PACED), (60, FULL), (61, PACED), (120, FULL),
    ]  # fmt: skip


def test_a_reason_that_lasts_is_one_event_and_a_new_one_follows_within_a_minute() -> None:
    news = WaitNews()
    waits = [FULL, PACED, *([FULL] * 200)]

    told = [(now, *news.take({"docs max-1": why}, float(now)).values()) for now, why in enumerate(waits)]

    assert [each for each in told if each[1:]] == [(0, FULL), (1, PACED), (60, FULL)]


def test_a_reason_that_came_back_too_soon_is_due_when_its_minute_is_over() -> None:
    news = WaitNews()
    for now, why in enumerate((FULL, PACED, FULL)):
        news.take({"docs max-1": why}, float(now))
    due = [now for now in range(2, 62) if news.is_due(float(now))]

    told = news.take({"docs max-1": FULL}, 60.0)

    assert (due, told, news.is_due(3600.0)) == ([60, 61], {"docs max-1": FULL}, False)
