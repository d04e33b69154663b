"""The behaviour of the Client beyond the Limiter's: leases that renew themselves, and daemons that are away."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web
from tests.client.conftest import SETTINGS
from tests.daemon import Daemon, RunDaemon

from paceline import Client, DaemonError, DaemonUnreachable, Deferred, SlotLost, SlotTimeout
from paceline.api.tokens import rotate_token
from paceline.client import daemon_client as client_slot
from paceline.core.signals import RateLimited
from paceline.errors import InvalidInput
from paceline.store import Lease

SCOPE = "acme/max-1/large"


def leases(daemon: Daemon) -> list[Lease]:
    return [slot.lease for slot in daemon.store.slots() if slot.lease is not None]


def queued(daemon: Daemon) -> int:
    status = daemon.engine.limiter.scope_status("acme")
    assert status is not None
    return status.queued


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# -- leases -----------------------------------------------------------------------------------------


async def test_a_slot_renews_itself_while_the_body_runs(daemon: Daemon) -> None:
    async with Client(daemon.url, daemon.tokens.full, ttl=1.0) as client, client.slot(SCOPE) as slot:
        first = slot.expires_at
        assert [lease.expires_at for lease in leases(daemon)] == [first]

        await daemon.until(lambda: slot.expires_at > first + 1.0)

        assert [lease.token for lease in leases(daemon)] == [slot.token]
        assert not slot.lost
    assert leases(daemon) == []


async def test_a_named_session_is_renewed_until_it_is_released(daemon: Daemon) -> None:
    async with Client(daemon.url, daemon.tokens.full, ttl=1.0) as client:
        await client.acquire_session("s1")
        (first,) = leases(daemon)
        await daemon.until(lambda: leases(daemon)[0].expires_at > first.expires_at + 1.0)

    async with Client(daemon.url, daemon.tokens.full, ttl=1.0) as back:
        await back.acquire_session("s1")
        (found,) = leases(daemon)
        await back.release_session("s1")

    assert (found.token, leases(daemon)) == (first.token, [])


async def test_releasing_a_session_over_http_releases_its_runs(client: Client, daemon: Daemon) -> None:
    await daemon.ask("POST", "/v1/slots", {"scope": "sessions", "session": "s 1"}, code=201)
    await daemon.ask("POST", "/v1/slots", {"scope": "other", "session": "s 1"}, code=201)
    other = await daemon.ask("POST", "/v1/slots", {"scope": SCOPE, "session": "s2"}, code=201)

    answers = [await daemon.ask("DELETE", "/v1/slots?session=s%201") for _ in range(2)]

    assert answers == [{"ok": True, "session": "s 1", "released": count} for count in (2, 0)]
    assert [slot.id for slot in daemon.store.slots()] == [other["id"]]
    await daemon.ask("DELETE", "/v1/slots", code=400)


async def test_a_slot_that_is_not_renewed_is_marked_lost(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.engine.capacity.leases.LOST_GRACE_SECONDS", 0.5)
    async with Client(daemon.url, daemon.tokens.full, ttl=1.0) as client:
        slot = await client.acquire(SCOPE)
        assert not slot.lost
        next_one = await client.acquire(SCOPE)

        assert slot.lost
        with pytest.raises(SlotLost, match="not renewed in time"):
            await slot.renew()
        with pytest.raises(SlotLost):
            await slot.report(RateLimited())
        await slot.release()
        assert [lease.token for lease in leases(daemon)] == [next_one.token]
        assert not (await client.scope_status(SCOPE)).paused


async def test_a_holder_renews_by_hand(client: Client, daemon: Daemon) -> None:
    slot = await client.acquire(SCOPE)
    first = slot.expires_at

    await slot.renew()

    assert slot.expires_at > first
    assert [lease.expires_at for lease in leases(daemon)] == [slot.expires_at]
    await slot.release()


# -- long waits -------------------------------------------------------------------------------------


async def test_a_long_wait_is_many_calls_in_one_place(
    client: Client, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_slot, "POLL_SECONDS", 0.05)
    held = await client.acquire(SCOPE)
    first = asyncio.create_task(client.acquire(SCOPE))
    await daemon.until(lambda: queued(daemon) == 1)
    monkeypatch.setattr(client_slot, "POLL_SECONDS", 30.0)
    second = asyncio.create_task(client.acquire(SCOPE))
    await daemon.until(lambda: queued(daemon) == 2)
    monkeypatch.setattr(client_slot, "POLL_SECONDS", 0.05)
    polls = counted_polls(daemon)
    await daemon.until(lambda: len(polls) >= 3)

    await held.release()

    slot = await first
    assert not second.done()
    await slot.release()
    await (await second).release()


def counted_polls(daemon: Daemon) -> list[str]:
    """Return a list that collects the calls to the daemon from now on."""
    polls: list[str] = []
    take = daemon.engine.leases.take

    async def counting(*arguments: object, **options: object) -> object:
        polls.append("call")
        return await take(*arguments, **options)  # type: ignore[arg-type]

    daemon.engine.leases.take = counting  # type: ignore[method-assign, assignment]
    return polls


# -- daemons that are away --------------------------------------------------------------------------


async def test_41_a_missing_daemon_raises_at_once() -> None:
    async with Client(f"http://127.0.0.1:{free_port()}", "x" * 32) as client:
        calls: list[Callable[[], object]] = [
            lambda: client.acquire(SCOPE),
            lambda: client.try_acquire(SCOPE),
            lambda: client.status(),
            lambda: client.slot(SCOPE).__aenter__(),
        ]
        for call in calls:
            with pytest.raises(DaemonUnreachable, match=r"no daemon answers at http://127.0.0.1:\d+ .*`paceline up`"):
                await call()  # type: ignore[misc]


async def test_a_wait_and_a_slot_survive_a_restart(run_daemon: RunDaemon) -> None:
    port = free_port()
    async with run_daemon(SETTINGS, port=port) as daemon:
        client = Client(daemon.url, daemon.tokens.full)
        held = await client.acquire(SCOPE)
        waits = asyncio.create_task(client.acquire(SCOPE, timeout=60))
        await daemon.until(lambda: queued(daemon) == 1)

    async with client, run_daemon(SETTINGS, port=port) as daemon:
        await daemon.until(lambda: queued(daemon) == 1)
        assert not held.lost
        await held.renew()
        await held.release()

        slot = await waits
        assert slot.token > held.token
        assert [lease.token for lease in leases(daemon)] == [slot.token]
        await slot.release()


async def test_a_wait_gives_up_when_its_time_or_its_patience_is_over(run_daemon: RunDaemon) -> None:
    async with run_daemon(SETTINGS) as daemon:
        client = Client(daemon.url, daemon.tokens.full, patience=3.0)
        await client.acquire(SCOPE)
        impatient = asyncio.create_task(client.acquire(SCOPE, timeout=2.0))
        patient = asyncio.create_task(client.acquire(SCOPE))
        await daemon.until(lambda: queued(daemon) == 2)
        daemon.engine.leases.close()

    async with client:
        with pytest.raises(SlotTimeout, match="no slot within 2 s"):
            await impatient
        with pytest.raises(DaemonUnreachable):
            await patient


async def test_a_block_survives_the_end_of_the_daemon(run_daemon: RunDaemon, caplog: pytest.LogCaptureFixture) -> None:
    async with run_daemon(SETTINGS) as daemon:
        client = Client(daemon.url, daemon.tokens.full)
        block = client.slot(SCOPE)
        slot = await block.__aenter__()

    with caplog.at_level(logging.WARNING, "paceline.client"):
        await block.__aexit__(None, None, None)

    assert not slot.released
    assert caplog.messages[-1] == f"{slot!r} was not released; its lease will expire"
    await client.aclose()


# -- who is asked -----------------------------------------------------------------------------------


async def test_the_address_and_the_token_come_from_the_environment(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_URL", daemon.url)
    monkeypatch.setenv("PACELINE_TOKEN", daemon.tokens.full)

    async with Client() as client, client.slot(SCOPE):
        assert client.url == daemon.url


async def test_the_token_of_the_home_is_sent_only_on_this_machine(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PACELINE_TOKEN", raising=False)
    monkeypatch.setenv("PACELINE_HOME", str(daemon.home.path))

    async with Client(daemon.url) as client:
        assert await client.get_limit("acme") == 1
    async with Client("http://paceline.example:7433") as client:
        with pytest.raises(InvalidInput, match="PACELINE_TOKEN"):
            await client.get_limit("acme")
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "nowhere"))
    async with Client(daemon.url) as client:
        with pytest.raises(DaemonUnreachable, match="nowhere/token"):
            await client.get_limit("acme")


async def test_a_program_goes_on_with_the_token_that_replaced_its_own(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PACELINE_TOKEN", raising=False)
    monkeypatch.setenv("PACELINE_HOME", str(daemon.home.path))
    later = [0.0]
    monkeypatch.setattr(daemon.tokens, "_now", lambda: time.monotonic() + later[0])

    async with Client(daemon.url) as client:
        assert await client.get_limit("acme") == 1
        rotate_token(daemon.store, daemon.home.path, "full")
        later[0] += 10.0
        assert await client.get_limit("acme") == 1


async def test_a_wrong_token_raises(daemon: Daemon) -> None:
    async with Client(daemon.url, "x" * 32) as client:
        with pytest.raises(DaemonError, match=r"refused \(401\).*paceline token"):
            await client.acquire(SCOPE)


async def test_a_server_that_is_no_daemon_raises() -> None:
    async def hello(_: web.Request) -> web.Response:
        return web.Response(text="hello")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", hello)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port := free_port())
    await site.start()
    try:
        async with Client(f"http://127.0.0.1:{port}", "x" * 32) as client:
            with pytest.raises(DaemonError, match="not as a Paceline daemon: "):
                await client.acquire(SCOPE)
    finally:
        await runner.cleanup()


async def test_two_programs_share_the_limit(daemon: Daemon) -> None:
    async with Client(daemon.url, daemon.tokens.full) as one, Client(daemon.url, daemon.tokens.full) as two:
        async with one.slot(SCOPE):
            assert isinstance(await two.try_acquire(SCOPE), Deferred)
        begun = time.time()
        async with two.slot(SCOPE, timeout=60) as slot:
            assert begun - 1 < slot.granted_at < time.time() + 1
