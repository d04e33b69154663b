"""How fast units get done: what the page and `top` say of when the rest will be."""

from paceline.events import Event
from paceline.store import MemoryStore
from paceline.views.throughput import CompletionRate, Throughput


def test_a_campaign_that_ended_long_ago_does_not_slow_the_one_that_runs() -> None:
    store = MemoryStore()
    store.append_events(
        [
            Event(name="unit.started", at=1000.0, unit="old/a"),
            Event(name="unit.done", at=1010.0, unit="old/a"),
            Event(name="unit.started", at=3000.0, unit="new/a"),
            Event(name="unit.done", at=3010.0, unit="new/a"),
        ]
    )
    throughput = Throughput(store)
    throughput.catch_up(3010.0)

    assert throughput.rate("new", 5, 3010.0) == CompletionRate(per_hour=1, pace=60.0, eta=3060.0)
    assert throughput.rate_of_all({"old": 0, "new": 5}, 3010.0) == CompletionRate(
        per_hour=2, pace=2 * 3600.0 / 2010.0, eta=3060.0
    )


def test_what_waits_behind_another_campaign_is_counted_at_the_speed_of_that() -> None:
    store = MemoryStore()
    store.append_events(
        [Event(name="unit.started", at=1000.0, unit="first/a"), Event(name="unit.done", at=1010.0, unit="first/a")]
    )
    throughput = Throughput(store)
    throughput.catch_up(1010.0)

    assert throughput.rate_of_all({"first": 1, "second": 3}, 1010.0) == CompletionRate(
        per_hour=1, pace=60.0, eta=1050.0
    )
    assert throughput.rate_of_all({"first": 0, "second": 3}, 1010.0) == CompletionRate(per_hour=1, pace=60.0, eta=None)


def test_the_rest_is_never_done_before_the_next_parked_unit_resumes() -> None:
    rate = CompletionRate(per_hour=10, pace=10.0, eta=1000.0)

    assert [rate.eta_after(at) for at in (None, 900.0, 5000.0)] == [1000.0, 1000.0, 5000.0]
    assert CompletionRate(per_hour=0, pace=0.0, eta=None).eta_after(5000.0) is None
