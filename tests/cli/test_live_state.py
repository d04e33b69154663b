"""Commands beside a running daemon: they show the live numbers of its gateway, as the page does."""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from zoneinfo import ZoneInfo

import httpx
import pytest
from tests.gateway.daemon_process import Daemon
from tests.gateway.gateway_harness import PATIENCE_SECONDS
from tests.gateway.raw_http import RawUpstream, Wire, ok

from paceline.cli.top.cells import snapshot_reader, strip
from paceline.daemon.contact import read_live
from paceline.daemon.home import open_home
from paceline.leadership.election import Leader, this_machine
from paceline.views.gateway_calls import GatewayActivity

ANSWER = json.dumps({"content": [], "usage": {"input_tokens": 1_000_000, "output_tokens": 1000}}).encode()
CALLS = 3


@pytest.fixture
def here(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}


def settings(url: str) -> str:
    return f"""
[accounts.work]
provider = "anthropic"
kind = "metered"
base_url = "{url}"
key_env = "WORK_KEY"
[limits]
"anthropic/work" = 1
[prices]
"m" = {{ input = 2.0, output = 1000.0 }}
"""


@contextlib.asynccontextmanager
async def upstream(go: asyncio.Event) -> AsyncIterator[RawUpstream]:
    """A provider that answers each call once it may."""

    async def answer(wire: Wire) -> None:
        while True:
            await wire.read_message()
            await go.wait()
            wire.send(ok(ANSWER))

    async with RawUpstream(answer) as made:
        yield made


async def test_every_command_sees_the_calls_of_the_gateway(tmp_path: Path, here: dict[str, str]) -> None:
    go = asyncio.Event()
    async with upstream(go) as provider:
        daemon = Daemon(tmp_path, settings(provider.url), "", here)

        async def shown(*command: str) -> dict[str, object]:
            done = await asyncio.to_thread(daemon.give, *command, "--json")
            assert (done.returncode, done.stderr) == (0, "")
            return dict(json.loads(done.stdout))

        with contextlib.ExitStack() as stack:
            client = await asyncio.to_thread(stack.enter_context, daemon.up())
            async with httpx.AsyncClient(
                base_url=client.base_url, headers=client.headers, timeout=PATIENCE_SECONDS, trust_env=False
            ) as caller:
                calls = [
                    asyncio.create_task(caller.post("/gateway/work/v1/messages", json={"model": "m"}))
                    for _ in range(CALLS)
                ]
                async with asyncio.timeout(PATIENCE_SECONDS):
                    listed: dict[str, list[dict[str, str]]] = {"waiting": []}
                    while len(listed["waiting"]) < CALLS - 1:
                        listed = (await caller.get("/v1/gateway/requests")).json()
                status, limits = await shown("status"), await shown("limits")
                waits = await shown("why", listed["waiting"][0]["id"])
                with open_home(daemon.env, tmp_path) as home:
                    top = snapshot_reader(home)(time.time())
                go.set()
                answers = await asyncio.gather(*calls)
                spent = await shown("gateway", "spend", "--by", "model")
                known = await shown("why", answers[0].headers["x-paceline-request-id"])
            await asyncio.to_thread(stack.close)
        stored = await shown("gateway", "spend", "--by", "model")
        stopped = await shown("status")

    assert status["gateway"] == {
        "in_flight": 1,
        "waiting": CALLS - 1,
        "per_minute": CALLS,
        "refused_per_minute": 0,
    }
    rows = {row["scope"]: row for row in limits["limits"]}  # type: ignore[attr-defined]
    assert (rows["anthropic/work"]["in_flight"], waits["reason"], waits["status"]) == (1, "limit", None)
    assert top.gateway is not None
    assert (top.gateway.in_flight, top.gateway.waiting) == (1, CALLS - 1)
    lines = {row.key: (row.cells[1].plain, row.cells[3].plain) for row in top.scopes}
    assert lines["anthropic/work"] == ("1/1", str(CALLS - 1))
    assert "calls in flight 1  waiting 2  a minute 3" in strip(top, ZoneInfo("UTC"), None).plain
    assert (known["status"], known["cost"]) == (200, {"billed": 3.0, "imputed": None})
    assert spent == stored
    assert spent["rows"] == [
        {
            "model": "m",
            "requests": CALLS,
            "tokens": {"input": 3_000_000, "output": 3000, "cache_read": 0, "cache_write": 0},
            "cost": {"billed": 9.0, "imputed": None},
            "unpriced": 0,
            "estimated": 0,
        }
    ]
    assert stopped["gateway"] == {"in_flight": 0, "waiting": 0, "per_minute": 0, "refused_per_minute": 0}


async def test_a_pool_whose_account_cannot_be_reached_says_so(tmp_path: Path, here: dict[str, str]) -> None:
    go = asyncio.Event()
    go.set()
    async with upstream(go) as provider:
        pool = """
daily_budget = "$3.50"
[accounts.dead]
provider = "anthropic"
kind = "metered"
base_url = "http://127.0.0.1:9"
[accounts.bare]
provider = "anthropic"
kind = "metered"
key_env = "BARE_KEY"
[key_pools.team]
accounts = ["dead", "work"]
"""
        configured = settings(provider.url).replace('[limits]\n"anthropic/work" = 1\n', f"{pool}")
        daemon = Daemon(tmp_path, configured, "", here)
        with contextlib.ExitStack() as stack:
            client = await asyncio.to_thread(stack.enter_context, daemon.up())
            answer = await asyncio.to_thread(client.post, "/gateway/team/v1/messages", json={"model": "m"})
            status = await asyncio.to_thread(daemon.give, "status")
            as_json = json.loads((await asyncio.to_thread(daemon.give, "status", "--json")).stdout)
            accounts = (await asyncio.to_thread(client.get, "/v1/accounts")).json()
            with open_home(daemon.env, tmp_path) as home:
                top = await asyncio.to_thread(snapshot_reader(home), time.time())
            why = [await asyncio.to_thread(daemon.give, "why", name) for name in ("team", "dead", "work", "bare")]
            asked = await asyncio.to_thread(daemon.give, "why", "team", "--json")
            overview = (await asyncio.to_thread(client.get, "/v1/overview")).json()
            await asyncio.to_thread(stack.close)

    assert (answer.status_code, answer.headers["x-paceline-account"]) == (200, "work")
    (line,) = [each for each in status.stdout.splitlines() if each.startswith("anthropic/dead")]
    assert " cannot be reached since " in line
    assert re.search("; (tried last in|the next call of) the pool team", line)
    told = [each.stdout.count(" cannot be reached since ") for each in why]
    assert told == [1, 1, 0, 0]
    assert "bare its key: BARE_KEY is not set where `paceline up` was started\n" in why[3].stdout
    (line,) = [each for each in status.stdout.splitlines() if each.startswith("anthropic/work")]
    assert "its budget: $3.00 of $3.50/day" in line
    assert "its budget: $3.00 of $3.50/day" in why[2].stdout
    assert json.loads(asked.stdout)["failures"] == overview["gateway"]["failures"]
    assert [each["account"] for each in overview["gateway"]["failures"]] == ["dead"]
    assert (as_json["failures"], as_json["accounts"]) == (overview["gateway"]["failures"], accounts["accounts"])
    rows = {row.key: row.cells[-1].plain for row in top.scopes}
    assert "its budget: $3.00 of $3.50/day" in rows["anthropic/work"]
    assert rows["anthropic/dead"].startswith("cannot be reached since ")


def test_nothing_is_said_of_the_calls_of_a_daemon_that_only_its_own_machine_can_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = Leader(owner="o", pid=1, since=0.0, host="box1", machine="another", url="http://127.0.0.1:7433")
    foreground = Leader(owner="o", pid=1, since=0.0, machine=this_machine())
    with open_home({"HOME": str(tmp_path), "PACELINE_HOME": str(tmp_path / "home")}, tmp_path) as home:
        found = []
        for leader in (elsewhere, foreground, None):
            monkeypatch.setattr(home, "engine_leader", lambda leader=leader: leader)
            found.append(read_live(home).gateway)

    assert found == [None, GatewayActivity(), GatewayActivity()]
