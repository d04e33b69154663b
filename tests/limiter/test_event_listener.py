"""Events reach `on_event` in their order, once."""

from paceline import Event, Limiter
from paceline.testing import VirtualClock


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
