"""The link over HTTP: what each answer means for a worker, and which address it asks."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from paceline.errors import InvalidInput, LinkDown, NotJoined, PacelineError, Refused
from paceline.hosts.messages import HostLoad, Orders, OrdersRequest, Reports, ReportsTaken
from paceline.hosts.worker.link import HttpLink, check_address, host_of_token, read_token

TOKEN = "box1.s3cret"
ASKED = OrdersRequest(joining="j1", after=3)


class SmallServer:
    """Answers every request with one status and body, and keeps what it was asked."""

    def __init__(self, status: int = 200, body: bytes = b"{}") -> None:
        self.answer = (status, body)
        self.asked: list[tuple[str, dict[str, str], bytes]] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readline()).decode().strip()
        headers = {}
        while header := (await reader.readline()).decode().strip():
            name, _, value = header.partition(": ")
            headers[name.lower()] = value
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.asked.append((line, headers, body))
        status, answer = self.answer
        head = f"HTTP/1.1 {status} X\r\ncontent-length: {len(answer)}\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + answer)
        await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def serving(server: SmallServer) -> AsyncIterator[SmallServer]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening:
        yield server


async def test_a_request_carries_the_token_and_comes_back_as_a_value() -> None:
    orders = Orders(now=12.0)
    async with serving(SmallServer(body=msgspec.json.encode(orders))) as server:
        link = HttpLink([server.url], TOKEN)
        answer = await link.orders(ASKED)
        await link.aclose()

    line, headers, body = server.asked[0]
    assert answer == orders
    assert line == "POST /v1/hosts/box1/orders HTTP/1.1"
    assert headers["authorization"] == "Bearer box1.s3cret"
    assert msgspec.json.decode(body, type=OrdersRequest) == ASKED


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, Refused),
        (403, Refused),
        (404, Refused),
        (409, Refused),
        (426, Refused),
        (410, NotJoined),
        (503, LinkDown),
        (500, LinkDown),
        (429, LinkDown),
    ],
)
async def test_each_answer_means_one_thing_to_a_worker(status: int, error: type[PacelineError]) -> None:
    async with serving(SmallServer(status, b'{"error": "x", "detail": "because of that"}')) as server:
        link = HttpLink([server.url], TOKEN)
        with pytest.raises(error, match="because of that"):
            await link.orders(ASKED)
        await link.aclose()


async def test_another_program_at_the_address_is_no_leader() -> None:
    async with serving(SmallServer(200, b"<html>")) as server:
        link = HttpLink([server.url], TOKEN)
        with pytest.raises(LinkDown, match="not as a leader does"):
            await link.orders(ASKED)
        await link.aclose()


async def test_the_next_address_is_asked_when_nobody_answers() -> None:
    taken = ReportsTaken(now=1.0, through=0)
    async with serving(SmallServer(503)) as standby, serving(SmallServer(body=msgspec.json.encode(taken))) as leader:
        link = HttpLink(["http://127.0.0.1:1", standby.url, leader.url], TOKEN)
        reports = Reports(joining="j1", load=HostLoad())
        for _ in range(2):
            with pytest.raises(LinkDown):
                await link.report(reports)
        answer = await link.report(reports)
        await link.aclose()

    assert answer == taken
    assert link.url == leader.url


async def test_commits_go_both_ways_as_files(tmp_path: Path) -> None:
    bundle, received = tmp_path / "bundle", tmp_path / "received"
    bundle.write_bytes(b"b" * 200_000)
    async with serving(SmallServer(body=b"commits")) as server:
        link = HttpLink([server.url], TOKEN)
        await link.send_commits("j1", "c1", bundle)
        await link.fetch_commits("j1", "c2", ("abc",), received)
        server.answer = (404, b'{"error": "x", "detail": "no call c3"}')
        with pytest.raises(Refused, match="no call c3"):
            await link.fetch_commits("j1", "c3", (), received)
        await link.aclose()

    assert [line for line, _, _ in server.asked] == [
        "POST /v1/hosts/box1/bundles/c1?joining=j1 HTTP/1.1",
        "POST /v1/hosts/box1/bundles/c2/wanted?joining=j1 HTTP/1.1",
        "POST /v1/hosts/box1/bundles/c3/wanted?joining=j1 HTTP/1.1",
    ]
    assert server.asked[0][2] == b"b" * 200_000
    assert server.asked[1][2] == b'{"have":["abc"]}'
    assert received.read_bytes() == b"commits"


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:7433", "http://localhost:7433/", "http://[::1]:1", "https://lead:7433"]
)
def test_a_token_is_sent_encrypted_or_to_this_machine(url: str) -> None:
    assert check_address(url, insecure=False) == url.rstrip("/")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://10.0.0.1:7433", "unencrypted"),
        ("http://lead:7433", "unencrypted"),
        ("lead:7433", "not a URL of a daemon"),
        ("ftp://lead", "not a URL of a daemon"),
        ("http://[::1", "not a valid URL"),
    ],
)
def test_an_address_that_would_give_the_token_away_is_refused(url: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        check_address(url, insecure=False)


def test_in_a_network_that_a_person_trusts_the_token_may_be_sent_as_it_is() -> None:
    assert check_address("http://10.0.0.1:7433", insecure=True) == "http://10.0.0.1:7433"


def test_a_token_names_its_host() -> None:
    assert host_of_token(read_token("gpu.rack.s3cret\n", "FILE")) == "gpu.rack"


@pytest.mark.parametrize("text", ["", "s3cret", ".s3cret", "box1.", "box1.s3 cret"])
def test_what_is_no_token_of_a_host_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"FILE does not hold a token of a host"):
        read_token(text, "FILE")
