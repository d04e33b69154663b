"""Where the bodies of API calls are decoded."""

import threading
from typing import ClassVar

import msgspec

from paceline.api.bodies import LARGE_BYTES, decode_body


class Body(msgspec.Struct):
    """A body that notes which thread decoded it."""

    text: str
    threads: ClassVar[list[threading.Thread]] = []

    def __post_init__(self) -> None:
        self.threads.append(threading.current_thread())


async def test_a_large_body_is_decoded_off_the_loop() -> None:
    bodies = [await decode_body(b'{"text": "%b"}' % (b"x" * size), Body) for size in (1, LARGE_BYTES)]

    assert [len(body.text) for body in bodies] == [1, LARGE_BYTES]
    assert [thread is threading.current_thread() for thread in Body.threads] == [True, False]
