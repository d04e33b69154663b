"""Old events go in small steps; what nobody has read yet stays."""

from paceline.engine.command_log import CONTROL_SEEN
from paceline.engine.retention import REST_SECONDS, STEP_EVENTS, EventRetention
from paceline.events import Event
from paceline.store import SqliteStore
from paceline.testing.engine_harness import NOW

DAY = 86_400.0


def store_with(events: int, *, read: int) -> SqliteStore:
    store = SqliteStore.in_memory()
    store.append_events([Event("unit.done", NOW + number, unit="night/a") for number in range(events)])
    store.save_state(CONTROL_SEEN, str(read).encode())
    return store


def test_old_events_are_deleted_a_few_in_each_pass() -> None:
    store = store_with(STEP_EVENTS * 2 + 10, read=STEP_EVENTS * 2 + 10)
    retention = EventRetention(store, keep=DAY)

    left = []
    for number in range(4):
        retention.step(NOW + 2 * DAY + number)
        left.append(len(store.events(limit=10_000)))

    assert left == [STEP_EVENTS + 10, 10, 0, 0]


def test_events_within_their_time_and_commands_that_nobody_read_stay() -> None:
    store = store_with(10, read=6)

    EventRetention(store, keep=DAY).step(NOW + DAY + 3.0)
    assert [event.id for event in store.events()] == [4, 5, 6, 7, 8, 9, 10]
    EventRetention(store, keep=DAY).step(NOW + 2 * DAY)
    assert [event.id for event in store.events()] == [7, 8, 9, 10]
    EventRetention(store, keep=None).step(NOW + 90 * DAY)
    assert [event.id for event in store.events()] == [7, 8, 9, 10]


def test_an_engine_that_is_up_to_date_looks_once_a_minute_and_follows_a_clock_that_is_set_back() -> None:
    store = store_with(3, read=3)
    retention = EventRetention(store, keep=0.0)

    for at, left in ((0.5, 2), (REST_SECONDS, 2), (REST_SECONDS + 0.5, 0)):
        retention.step(NOW + at)
        assert len(store.events()) == left
    store.append_events([Event("unit.done", NOW - 9 * DAY)])
    store.save_state(CONTROL_SEEN, b"4")
    retention.step(NOW - DAY)
    assert store.events() == []
