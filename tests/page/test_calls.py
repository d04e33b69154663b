"""API calls on the page: their figures, what each key costs, and a first start that helps."""

import asyncio
import contextlib
import json
import re
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Page, expect
from tests.gateway.daemon_process import Daemon
from tests.gateway.raw_http import RawUpstream, Wire, ok
from tests.page.conftest import MakeDaemon
from tests.page.daemon import page_address

ANSWER = json.dumps({"content": [], "usage": {"input_tokens": 1_000_000, "output_tokens": 1000}}).encode()
PRICED = """
[prices]
"m" = { input = 2.0, output = 1000.0 }
"""
pytestmark = pytest.mark.asyncio(loop_scope="session")

ACCOUNT = """
[accounts.work-key]
provider = "anthropic"
kind = "metered"
base_url = "http://127.0.0.1:9"
"""


async def test_the_first_start_shows_a_plan_the_accounts_and_the_address_for_clients(
    make_daemon: MakeDaemon, page: Page
) -> None:
    daemon = await make_daemon(ACCOUNT)
    await page.goto(page_address(daemon))
    first = page.locator("#first-start")

    await expect(first).to_contain_text("Nothing has run here yet")
    await expect(first).to_contain_text('name = "first"')
    await expect(first).to_contain_text("work-key: anthropic, metered")
    await expect(first).to_contain_text(f"export ANTHROPIC_BASE_URL={daemon.url}/gateway/work-key")

    daemon.add("docs", "true", "a")
    await expect(first).to_be_hidden()


async def test_loading_does_not_look_like_an_empty_system(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon(ACCOUNT)
    held: list[object] = []
    await page.route("**/v1/overview", lambda route: held.append(route))
    await page.goto(page_address(daemon))

    await expect(page.locator("#connection")).to_have_text("connecting")
    for text in ("No campaigns yet", "Nothing has run here yet", "No capacity in use yet"):
        await expect(page.get_by_text(text)).to_be_hidden()
    await page.unroute("**/v1/overview")


async def test_a_user_of_the_gateway_alone_sees_calls_cost_and_keys(page: Page, tmp_path: Path) -> None:
    async def answer(wire: Wire) -> None:
        while True:
            await wire.read_message()
            wire.send(ok(ANSWER))

    with contextlib.ExitStack() as stack:
        async with RawUpstream(answer) as provider:
            settings = ACCOUNT.replace("http://127.0.0.1:9", provider.url) + 'key_env = "WORK_KEY"\n' + PRICED
            daemon = Daemon(tmp_path, settings, "", {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "WORK_KEY": "k"})
            client = await asyncio.to_thread(stack.enter_context, daemon.up())
            token = client.headers["authorization"].removeprefix("Bearer ")
            made = await asyncio.to_thread(client.post, "/v1/keys", json={"name": "team-a"})
            headers = {"x-api-key": made.json()["key"]}
            async with httpx.AsyncClient(base_url=client.base_url, headers=headers, trust_env=False) as team:
                for _ in range(3):
                    answered = await team.post("/gateway/work-key/v1/messages", json={"model": "m"})
                    assert answered.status_code == 200
            await page.goto(f"{client.base_url}?token={token}")
            calls = page.locator("#calls")

            await expect(page.locator("#engine [data-figure='cost']")).to_have_text("$9.00")
            await expect(page.locator("#engine .tile.running")).to_be_hidden()
            await expect(page.locator("#first-start")).to_be_hidden()
            row = calls.locator("[data-call='team-a']")
            await expect(row).to_contain_text("$9.00")
            await expect(row.locator("td").nth(1)).to_have_text("3")
            await expect(calls.locator("table").nth(2).locator("tbody tr")).to_have_count(3)

            await row.get_by_role("button", name="Revoke team-a").click()
            await page.get_by_role("button", name="Revoke the key").click()
            await expect(page.get_by_role("button", name=re.compile("^Revoke team-a"))).to_have_count(0)
            async with httpx.AsyncClient(base_url=client.base_url, headers=headers, trust_env=False) as team:
                assert (await team.post("/gateway/work-key/v1/messages", json={"model": "m"})).status_code == 401
            await page.close()
