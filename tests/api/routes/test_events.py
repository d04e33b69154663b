"""`/v1/events` over real sockets: what a browser gets, reconnects, shutdown, readers that do not read, bad input."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from tests.api.event_source import EventSource
from tests.daemon import Daemon, RunDaemon

from paceline.engine.command_log import person
from paceline.events import Event
from paceline.store import Store


class Listening:
    """A browser's `EventSource` on a real connection."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self.source = EventSource()
        self._pieces = answer.aiter_bytes()

    async def until_heard(self, name: str, unit: str | None = None) -> dict[str, Any]:
        """The first event of that name, and of that unit."""
        async with asyncio.timeout(60.0):
            while True:
                heard = [message.value for message in self.source.messages if message.event == "message"]
                for value in heard:
                    if value["name"] == name and unit in (None, value["unit"]):
                        return dict(value)
                await self.hear()

    async def hear(self) -> None:
        self.source.feed(await anext(self._pieces))

    async def until_over(self) -> None:
        async with asyncio.timeout(60.0):
            async for piece in self._pieces:
                self.source.feed(piece)


@asynccontextmanager
async def listening(daemon: Daemon, query: str = "", last_event_id: str | None = None) -> AsyncIterator[Listening]:
    headers = {} if last_event_id is None else {"last-event-id": last_event_id}
    async with daemon.client.stream("GET", f"/v1/events{query}", headers=headers) as answer:
        assert answer.status_code == 200
        listener = Listening(answer)
        await listener.hear()
        yield listener


def stored_ids(store: Store, after: int = 0) -> list[int]:
    return [stored.id for stored in store.events(after=after, limit=100_000)]


async def test_a_unit_is_watched_from_start_to_end(daemon: Daemon) -> None:
    async with listening(daemon, "?name=unit.") as listener:
        daemon.add("docs", "exit 0", "a")
        await listener.until_heard("unit.done", "docs/a")

        assert listener.answer.headers["content-type"].startswith("text/event-stream")
        assert listener.answer.headers["cache-control"] == "no-store"
        assert [message.value["name"] for message in listener.source.messages] == ["unit.started", "unit.done"]
        stored = {each.id: each.event for each in daemon.store.events(limit=1000)}
        for message in listener.source.messages:
            event = stored[int(message.id)]
            assert message.value == {
                "id": int(message.id),
                "at": event.at,
                "name": event.name,
                "scope": event.scope,
                "unit": event.unit,
                "fields": event.fields,
            }


async def test_commands_of_the_cli_and_of_the_api_are_events(daemon: Daemon) -> None:
    async with listening(daemon) as listener:
        await daemon.ask("PUT", "/v1/pool", {"sessions": 7})

        order = await listener.until_heard("control.limit")
        change = await listener.until_heard("scope.limit_set")

        assert (order["scope"], order["fields"]) == ("sessions", {"limit": 7, "by": f"{person()} (token)"})
        assert (change["scope"], change["fields"]["limit"]) == ("sessions", 7)


async def test_a_reader_that_comes_back_after_a_restart_has_missed_nothing(run_daemon: RunDaemon) -> None:
    async with run_daemon() as daemon, listening(daemon, "?after=0") as listener:
        daemon.add("docs", "exit 0", "a", "b")
        await listener.until_heard("unit.done", "docs/b")
        heard = listener.source.ids
        place = listener.source.last_event_id
    async with run_daemon() as daemon:
        daemon.add("more", "exit 0", "c")
        async with listening(
            daemon, "?after=1", last_event_id=place
        ) as listener:  # as a browser does: with its old URL
            await listener.until_heard("unit.done", "more/c")
            heard += listener.source.ids

        kept = stored_ids(daemon.store)
        assert heard == kept[: len(heard)]
        assert daemon.store.events(after=heard[-1] - 1, limit=1)[0].event.unit == "more/c"


@pytest.mark.parametrize("query", ["?last_event_id=0", "?after=0"])
async def test_all_that_is_kept_is_replayed_by_either_name(daemon: Daemon, query: str) -> None:
    daemon.store.append_events([Event("scope.resumed", 1.0, f"provider-{number}") for number in range(1500)])

    async with listening(daemon, query) as listener:
        daemon.engine.emit("scope.resumed", scope="the-end")
        daemon.engine.wake()
        while not any(message.value["scope"] == "the-end" for message in listener.source.messages[-5:]):
            await listener.hear()

        assert listener.source.ids == stored_ids(daemon.store)[: len(listener.source.ids)]
        assert len(listener.source.ids) > 1500


async def test_closing_ends_open_streams_before_the_server_stops(run_daemon: RunDaemon) -> None:
    async with run_daemon() as daemon:
        async with listening(daemon) as first, listening(daemon, "?after=0") as second:
            daemon.context.close()
            await asyncio.gather(first.until_over(), second.until_over())
        assert daemon.context.background.stream.readers == 0


async def test_asking_for_the_head_alone_ends_with_it(daemon: Daemon) -> None:
    daemon.store.append_events([Event("scope.resumed", 1.0, "umans")] * 1000)

    async with asyncio.timeout(60.0):
        for path in ("/v1/events", "/v1/events?after=0", "/metrics", "/healthz"):
            answer = await daemon.client.head(path)  # one connection for all of them
            assert (answer.status_code, answer.content) == (200, b"")
        await daemon.until(lambda: daemon.context.background.stream.readers == 0)


async def test_a_reader_that_hangs_up_is_forgotten(daemon: Daemon) -> None:
    async with listening(daemon):
        assert daemon.context.background.stream.readers == 1
    await daemon.until(lambda: daemon.context.background.stream.readers == 0)


async def test_a_reader_that_never_reads_costs_what_is_on_its_way_and_holds_nobody_up(daemon: Daemon) -> None:
    address = urlsplit(daemon.url)
    with socket.create_connection((address.hostname, address.port or 0)) as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        asked = f"GET /v1/events?after=0 HTTP/1.1\r\nhost: {address.netloc}\r\n"
        silent.sendall(f"{asked}authorization: Bearer {daemon.tokens.full}\r\n\r\n".encode())
        await daemon.until(lambda: daemon.context.background.stream.readers == 1)
        text = "x" * 500
        async with listening(daemon, "?name=unit.") as other:
            for _ in range(40):
                daemon.store.append_events([Event("scope.paused", 1.0, "umans", None, {"cause": text})] * 500)
            daemon.add("docs", "exit 0", "a")
            await other.until_heard("unit.done", "docs/a")

        unread = _unread_bytes(silent)
        assert len(text) * 20_000 == 10_000_000
        assert unread < 5_000_000  # what the kernel holds for it; the rest was never made
    await daemon.until(lambda: daemon.context.background.stream.readers == 0)


def _unread_bytes(connection: socket.socket) -> int:
    connection.setblocking(False)
    total = 0
    try:
        while piece := connection.recv(1 << 20):
            total += len(piece)
    except BlockingIOError:
        return total
    return total


async def test_a_read_only_token_is_enough_and_none_is_not(daemon: Daemon) -> None:
    for path in ("/v1/events", "/v1/timeline", "/metrics"):
        async with daemon.new_client() as nobody, nobody.stream("GET", path) as answer:
            assert answer.status_code == 401
        async with daemon.new_client(daemon.tokens.read_only) as reader, reader.stream("GET", path) as answer:
            assert answer.status_code == 200


async def test_nonsense_is_refused_and_named(daemon: Daemon) -> None:
    nonsense = {
        "after": ["-1", "soon", "1.5", str(1 << 63), ""],
        "last_event_id": ["x"],
        "unit": ["docs", "", "/a", "docs/"],
        "name": ["", "nonsense.", "unit.&name=%00", "unit.done.x"],
    }
    for field, values in nonsense.items():
        for value in values:
            body = await daemon.get(f"/v1/events?{field}={value}", code=400)
            assert (body["error"], body["detail"].partition(":")[0]) == ("invalid", field)
    for place in ("yesterday", "-1", "1.5", "9" * 30, "0x10", "1 2"):
        answer = await daemon.client.get("/v1/events", headers={"last-event-id": place})
        assert (answer.status_code, answer.json()["detail"].partition(":")[0]) == (400, "Last-Event-ID")


async def test_the_largest_id_there_can_be_is_reported_as_a_gap(daemon: Daemon) -> None:
    async with listening(daemon, f"?after={(1 << 63) - 1}") as listener:
        while not listener.source.messages:
            await listener.hear()

        oldest = stored_ids(daemon.store)[0]
        assert listener.source.messages[0].event == "gap"
        assert listener.source.messages[0].value == {"after": (1 << 63) - 1, "oldest": oldest}
