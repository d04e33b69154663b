"""Any command inside a slot (`paceline exec`): wait for it, run, and on a limit wait and run again.

Here: one command and its slot. Its output passes through unchanged; it is read on the way, to know a limit when
one is met. Never here: who may enter (`outside.py` asks whoever leads).
"""

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import BinaryIO

from paceline.clock import Clock
from paceline.core import Deferred
from paceline.core.signals import AnySignal, Signal
from paceline.detect import StreamReader
from paceline.detect.stream import Channel
from paceline.engine.outside import OutsideClient, SlotHost, process_id
from paceline.store import Store

LOOK_SECONDS = 0.2
CHUNK_BYTES = 65536
LIMITED = ("rate_limit", "quota_window", "overloaded")
COULD_NOT_START = 127


class Guest:
    """One command, run in a slot of `scopes` until it ends without having met a limit."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        store: Store,
        host: SlotHost,
        clock: Clock,
        scopes: tuple[str, ...],
        provider: str,
        tz: str,
        priority: int = 0,
        on_wait: Callable[[Deferred], object] | None = None,
    ) -> None:
        self._argv = tuple(argv)
        self._store = store
        self._host = host
        self._clock = clock
        self._scopes = scopes
        self._provider = provider
        self._tz = tz
        self._priority = priority
        self._on_wait = on_wait or (lambda deferred: None)

    async def run(self) -> int:
        """The command's own exit code."""
        hosting = asyncio.create_task(self._lead_where_nobody_does())
        try:
            while True:
                exit_code, is_limited = await self._run_once()
                if not is_limited:
                    return exit_code
        finally:
            hosting.cancel()
            with suppress(asyncio.CancelledError):
                await hosting
            self._host.resign(self._clock.now())

    async def _lead_where_nobody_does(self) -> None:
        while True:
            self._host.serve(self._clock.now())
            await self._clock.sleep(LOOK_SECONDS)

    async def _run_once(self) -> tuple[int, bool]:
        client = OutsideClient(self._store, self._scopes, priority=self._priority, holder=process_id(os.getpid()))
        client.request(self._clock.now())
        try:
            await self._wait_for_slot(client)
            reader = StreamReader(self._provider, tz=self._tz)
            exit_code, signals = await self._run_command(reader)
            for signal in signals:
                assert isinstance(signal, AnySignal)
                client.report(self._scopes[-1], signal, self._clock.now())
            return exit_code, exit_code != 0 and reader.outcome in LIMITED
        finally:
            client.release(self._clock.now())

    async def _wait_for_slot(self, client: OutsideClient) -> None:
        told: tuple[str, str] | None = None
        while True:
            slot = client.look()
            if slot is not None and slot.granted_at is not None:
                return
            if slot is not None and slot.waiting is not None:
                news = (slot.waiting.reason, slot.waiting.scope)
                if news != told:
                    told = news
                    self._on_wait(slot.waiting)
            await self._clock.sleep(LOOK_SECONDS)

    async def _run_command(self, reader: StreamReader) -> tuple[int, list[Signal]]:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
        except OSError as error:
            print(f"{self._argv[0]}: {error.strerror or error}", file=sys.stderr)
            return COULD_NOT_START, []
        assert process.stdout is not None
        assert process.stderr is not None
        signals: list[Signal] = []
        try:
            await asyncio.gather(
                self._pass_on(process.stdout, sys.stdout.buffer, reader, "stdout", signals),
                self._pass_on(process.stderr, sys.stderr.buffer, reader, "stderr", signals),
            )
            code = await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()
        exit_code = 128 - code if code < 0 else code
        signals += reader.close(exit_code=exit_code, seen_at=self._clock.now())
        return exit_code, signals

    async def _pass_on(
        self,
        source: asyncio.StreamReader,
        sink: BinaryIO,
        reader: StreamReader,
        channel: Channel,
        signals: list[Signal],
    ) -> None:
        while chunk := await source.read(CHUNK_BYTES):
            sink.write(chunk)
            sink.flush()
            signals += reader.feed(chunk, channel=channel, seen_at=self._clock.now())
