"""The log of requests: bounded, and with ids that are never given twice."""

from paceline.gateway.routes import MinuteCount, RequestLog

NOW = 1_700_000_000.0


def test_only_the_last_requests_are_kept() -> None:
    log = RequestLog(kept=2)
    records = [log.new_record(NOW + number) for number in range(4)]
    for record in records:
        log.admit(record, NOW)
    for record in records[:3]:
        log.ended(record)

    assert (list(log.live()), list(log.recent())) == ([records[3]], [records[2], records[1]])
    assert [log.find(record.id) for record in records] == [None, *records[1:]]


def test_a_request_that_was_never_let_in_leaves_no_trace() -> None:
    log = RequestLog()
    record = log.new_record(NOW)

    log.ended(record)

    assert (list(log.live()), list(log.recent()), log.arrivals.total(NOW)) == ([], [], 0)


def test_ids_of_two_gateways_differ() -> None:
    ids = [log.new_record(NOW).id for log in (RequestLog(), RequestLog()) for _ in range(3)]

    assert len(set(ids)) == 6


def test_a_minute_is_counted_by_its_seconds() -> None:
    count = MinuteCount()
    for second in (0.0, 0.5, 30.0, 59.9):
        count.add(NOW + second)

    assert [count.total(NOW + at) for at in (59.9, 60.0, 89.0, 90.0, 118.0, 119.0)] == [4, 2, 2, 1, 1, 0]


def test_a_clock_that_is_set_back_or_far_ahead_begins_a_new_minute() -> None:
    count = MinuteCount()
    count.add(NOW)

    assert count.total(NOW - 3600.0) == 0
    count.add(NOW - 3600.0)
    assert (count.total(NOW - 3600.0), count.total(NOW + 3600.0)) == (1, 0)


def test_the_speed_of_a_queue_is_that_of_the_calls_it_served_in_the_last_minute() -> None:
    log = RequestLog()
    for number in range(20):
        record = log.new_record(NOW + number)
        record.scope, record.status, record.seconds = ("openai/a/m", "openai/b/m")[number % 2], 200, 1.0
        log.admit(record, NOW + number)
        if number >= 18:
            record.status = 429
        log.ended(record)

    speeds = [log.ended_per_second(scope, NOW + 21.0) for scope in ("openai/a", "openai/b/m", "openai", "runs", "groq")]

    assert speeds == [9 / 20, 9 / 19, 18 / 20, 18 / 20, 0.0]
    assert log.ended_per_second("openai", NOW + 121.0) == 0.0
