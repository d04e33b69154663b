"""docs/slots.md does what it says: its shell blocks run with the real curl, its Python block as it stands."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.daemon import Daemon, RunDaemon

PAGE = (Path(__file__).parents[3] / "docs" / "slots.md").read_text("utf-8")
SHELL = re.compile(r"^```sh\n(.*?)^```", re.S | re.M)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.S | re.M)
SHOWN = re.compile(r"# (\{.*\})$", re.M)
LIMIT = re.findall(r"^paceline limit acme ([0-9]+) ", PAGE, re.M)[0]
SETTINGS = f'[limits]\n"acme" = {LIMIT}\n[providers.acme]\ncooldown = "0s"\n'


@pytest.fixture
async def daemon(run_daemon: RunDaemon) -> AsyncIterator[Daemon]:
    async with run_daemon(SETTINGS) as made:
        yield made


async def run(daemon: Daemon, *argv: str) -> str:
    environ = os.environ | {"PACELINE_URL": daemon.url, "PACELINE_TOKEN": daemon.tokens.full}
    process = await asyncio.create_subprocess_exec(*argv, env=environ, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    assert process.returncode == 0
    return printed.decode()


def shell_block(beginning: str) -> str:
    (found,) = [block for block in SHELL.findall(PAGE) if block.startswith(beginning)]
    return str(found)


def keys_shown(*blocks: str) -> list[list[str]]:
    return [list(json.loads(shown)) for block in blocks for shown in SHOWN.findall(block)]


def keys_printed(printed: str) -> list[list[str]]:
    return [list(json.loads(line)) for line in printed.replace("}{", "}\n{").splitlines()]


async def test_the_life_of_a_slot_with_curl(daemon: Daemon) -> None:
    """Taken and given back as on the page; what is done with a slot in between is done in between."""
    taking = shell_block("slot=$(curl")
    take, give_back = taking.split("# ... the call ...\n")
    keep, tell = (next(each for each in SHELL.findall(PAGE) if part in each) for part in ("/renew", "/signal"))

    printed = await run(daemon, "sh", "-ec", "\n".join([take, keep, "echo", tell, "echo", give_back]))

    assert keys_printed(printed.replace("\n\n", "\n")) == keys_shown(take, keep, tell, give_back)
    assert daemon.store.slots() == []


async def test_a_scope_that_is_full_says_what_the_page_says(daemon: Daemon) -> None:
    await daemon.ask("POST", "/v1/slots", {"scope": "acme/main"}, code=201)
    block = shell_block('curl -sS "$PACELINE_URL/v1/slots"')

    printed = await run(daemon, "sh", "-ec", block)

    assert json.loads(printed) == json.loads(SHOWN.findall(block)[0])


async def test_a_long_wait_with_curl(daemon: Daemon) -> None:
    held = await daemon.ask("POST", "/v1/slots", {"scope": "acme/main"}, code=201)
    waiting = asyncio.create_task(run(daemon, "sh", "-ec", shell_block("ask=")))
    await daemon.until(lambda: (status := daemon.engine.limiter.scope_status("acme")) is not None and status.queued)

    await daemon.ask("DELETE", f"/v1/slots/{held['id']}")

    *waits, taken = (await waiting).splitlines()
    assert set(waits) <= {"still waiting"}
    assert [slot.id for slot in daemon.store.slots()] == [json.loads(taken)["id"]]


async def test_the_python_block_runs(daemon: Daemon, tmp_path: Path) -> None:
    (code,) = PYTHON.findall(PAGE)
    script = tmp_path / "example.py"
    script.write_text(code)

    printed = await run(daemon, sys.executable, str(script))

    assert "anthropic/max-1/opus-4-6" in printed
    assert daemon.store.slots() == []
