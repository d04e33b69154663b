"""The hosts section: which workers are there, what they run and have, and nothing at all without hosts."""

import time
from typing import Any

import msgspec
import pytest
from playwright.async_api import Page, expect
from tests.daemon import Daemon
from tests.page.conftest import MakeDaemon
from tests.page.daemon import page_address
from tests.page.test_accessibility import overflowing

from paceline.hosts.messages import HostCli, HostFacts, HostLoad, JoinRequest, Login, Reports

pytestmark = pytest.mark.asyncio(loop_scope="session")

HOSTS = """
[hosts.box1]
max_sessions = 8
labels = ["gpu"]
[hosts.box2]
"""
FACTS = HostFacts(
    version="1",
    machine="box1/0",
    hostname="rack-7",
    home="/home/ada/w",
    user_home="/home/ada",
    cpus=16,
    memory=32_000_000_000,
    logins=(Login(account="max-1"), Login(account="max-2", problem="the login has expired")),
    clis=(HostCli(agent="claude", version="2.1.3"), HostCli(agent="codex")),
)
"""What a worker reports: two accounts, one of which it cannot use, and one of two programs."""


async def join(daemon: Daemon, facts: HostFacts = FACTS) -> None:
    """Let the worker of box1 join, and report what it has left."""
    request = JoinRequest(worker="home-1", facts=facts)
    joined = await daemon.ask("POST", "/v1/hosts/box1/join", msgspec.to_builtins(request))
    load = HostLoad(free_memory=12_400_000_000, leaves_at=time.time() + 7200)
    reports = Reports(joining=joined["joining"], load=load)
    await daemon.ask("POST", "/v1/hosts/box1/reports", msgspec.to_builtins(reports))


async def texts(page: Page, host: str) -> dict[str, Any]:
    row = page.locator(f"[data-host='{host}']")
    figures = await row.locator("[data-figure]").evaluate_all(
        "all => all.map(one => [one.dataset.figure, one.innerText])"
    )
    return {**dict(figures), "worker": await row.locator(".badge").inner_text()}


async def test_without_hosts_there_is_no_section(daemon: Daemon, page: Page) -> None:
    await page.goto(page_address(daemon))
    await expect(page.locator("#connection")).to_have_text("live")
    await expect(page.locator("#hosts")).to_be_hidden()


async def test_hosts_are_shown_with_what_they_run_and_have(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon(HOSTS)
    await page.goto(page_address(daemon))
    await expect(page.locator("#hosts-aside")).to_have_text("0 of 2 hosts joined")
    assert await texts(page, "box2") == {"sessions": "0", "free_memory": "–", "heard": "–", "worker": "absent"}

    await join(daemon)
    row = page.locator("[data-host='box1']")
    await expect(row.locator(".badge")).to_have_text("joined")
    await expect(page.locator("#hosts-aside")).to_have_text("1 of 2 hosts joined")
    await expect(row.locator("[data-figure='free_memory']")).to_have_text("12.4 GB of 32 GB")
    await expect(row.locator("[data-figure='sessions']")).to_have_text("0/8")
    await expect(row.locator("[data-figure='heard']")).to_contain_text("ago")
    await expect(row.locator(".labels")).to_have_text("gpu")
    await expect(row.locator(".host-has")).to_have_text("rack-7 · 1 login · claude 2.1.3")
    await expect(row).to_contain_text("max-2: the login has expired")
    await expect(row).to_contain_text("its allocation ends")


@pytest.mark.parametrize("width", [360, 820, 1280, 2560])
async def test_no_host_is_wider_than_the_screen(make_daemon: MakeDaemon, page: Page, width: int) -> None:
    long = "a-name-without-any-place-to-break-it-that-goes-on-and-on-and-on"
    daemon = await make_daemon(f'{HOSTS}\n[hosts.{long}]\nlabels = ["{long}"]\n')
    problem = Login(account=long, problem=long * 3)
    await join(daemon, msgspec.structs.replace(FACTS, hostname=long, logins=(problem,)))
    await page.set_viewport_size({"width": width, "height": 800})
    await page.goto(page_address(daemon))
    await expect(page.locator("[data-host='box1'] .badge")).to_have_text("joined")
    assert await overflowing(page) == []
