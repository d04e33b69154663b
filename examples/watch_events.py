"""The events of a limiter, in virtual time.

python examples/watch_events.py
"""

import asyncio

from paceline import Event, Limiter
from paceline.testing import VirtualClock


def show(event: Event) -> None:
    print(f"{event.at:6.1f} s  {event.name:<22} {event.scope or '':<8} {event.fields}")


async def main() -> None:
    clock = VirtualClock()
    limiter = Limiter(limits={"umans": 2}, clock=clock, on_event=show)
    first = await limiter.acquire("umans")
    second = await limiter.acquire("umans")
    third = asyncio.create_task(limiter.acquire("umans"))
    await clock.advance(1.0)
    first.rate_limited(retry_after=5.0)
    first.release()
    second.release()
    await clock.advance(10.0)
    (await third).release()
    await limiter.aclose()


if __name__ == "__main__":
    asyncio.run(main())
