"""A real daemon, killed with `kill -9` while clients take slots and give them back: no answer is forgotten."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import pytest

from paceline.store import SqliteStore

SCOPE = "acme/main"
LIMIT = 30
SETTINGS = f'[limits]\n"acme" = {LIMIT}\n[providers.acme]\ncooldown = "0s"\n[pool]\nruns = 1000\n'


class Up:
    """`paceline up` in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        address = httpx.URL(url)
        self.process = process
        self.client = httpx.AsyncClient(
            base_url=f"http://{address.host}:{address.port}",
            headers={"authorization": f"Bearer {address.params['token']}"},
            trust_env=False,
            timeout=60.0,
        )

    async def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


@contextlib.asynccontextmanager
async def daemon(folder: Path) -> AsyncIterator[Up]:
    (folder / "paceline.toml").write_text(SETTINGS)
    environ = os.environ | {"HOME": str(folder), "PACELINE_HOME": str(folder / "home")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "paceline", "up", "--port", "0", "--json"),
        cwd=folder,
        env=environ,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    up = Up(process, msgspec.json.decode(await process.stdout.readline())["url"])
    try:
        async with up.client:
            yield up
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


class Ledger:
    """What clients know for certain: `held` were answered with 201 and never asked to be given back."""

    def __init__(self) -> None:
        self.held: dict[str, int] = {}
        self.answers = 0

    async def work(self, client: httpx.AsyncClient, name: str) -> None:
        """Take, give every third one back, until the daemon is gone."""
        with contextlib.suppress(httpx.TransportError):
            for number in range(LIMIT):
                body = {"scope": SCOPE, "ttl": 600, "idempotency_key": f"{name}-{number}"}
                answer = await client.post("/v1/slots", json=body)
                if answer.status_code == 409:
                    return
                slot = answer.raise_for_status().json()
                self.held[slot["id"]] = slot["token"]
                self.answers += 1
                if number % 3 == 2:
                    del self.held[slot["id"]]
                    (await client.delete(f"/v1/slots/{slot['id']}")).raise_for_status()


@pytest.mark.parametrize("answers", [1, 20])
async def test_37_what_was_answered_survives_kill_9(tmp_path: Path, answers: int) -> None:
    ledger = Ledger()
    async with daemon(tmp_path) as up:
        workers = [asyncio.create_task(ledger.work(up.client, f"w{number}")) for number in range(6)]
        async with asyncio.timeout(60.0):
            while ledger.answers < answers:
                await asyncio.wait(workers, timeout=0.001)
        await up.kill()
        await asyncio.gather(*workers)

    store = SqliteStore(tmp_path / "home" / "paceline.db")
    stored = {slot.id: slot.lease.token for slot in store.slots() if slot.lease is not None}
    store.close()
    assert ledger.held.items() <= stored.items()
    assert len(stored) <= LIMIT

    async with daemon(tmp_path) as up:
        for slot_id, token in ledger.held.items():
            renewed = (await up.client.post(f"/v1/slots/{slot_id}/renew")).raise_for_status().json()
            assert (renewed["id"], renewed["token"]) == (slot_id, token)
        more = [await up.client.post("/v1/slots", json={"scope": SCOPE}) for _ in range(LIMIT + 1)]
        granted = [answer.json()["token"] for answer in more if answer.status_code == 201]
        assert len(stored) + len(granted) == LIMIT
        assert {answer.status_code for answer in more} == {201, 409}
        assert min(granted) > max(stored.values())
