"""The unmodified agent CLIs through the gateway, with its token as their API key. Runs on `make test-agents`."""

import asyncio
from pathlib import Path

import pytest
from tests.agents.house import INSTALLED, base_environ
from tests.gateway.house import KEY, TOKEN, GatewayHouse, account

from paceline.testing import FakeProvider
from paceline.testing.provider import Scenario, Step

PATIENCE_SECONDS = 90.0
PROMPT = "Say how many files there are here."
CODEX_CONFIG = """\
model = "gpt-5"
model_provider = "gateway"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.gateway]
name = "gateway"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "GATEWAY_KEY"
request_max_retries = 0
stream_max_retries = 0
"""

pytestmark = [
    pytest.mark.agents,
    pytest.mark.skipif(not (INSTALLED / ".installed").exists(), reason="no agent CLIs here: make agents"),
]


async def run_cli(folder: Path, *command: str, **environ: str) -> tuple[int | None, str]:
    """The CLI in an empty home, with what `environ` says and nothing of the person's own."""
    work = folder / "work"
    work.mkdir()
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=work,
        env=base_environ(folder) | environ,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        output, _ = await process.communicate()
    return process.returncode, output.decode(errors="replace")


async def run_claude(folder: Path, url: str) -> tuple[int | None, str]:
    return await run_cli(
        folder,
        *("claude", "-p", PROMPT, "--model", "claude-opus-4-6"),
        ANTHROPIC_BASE_URL=f"{url}/gateway/claude",
        ANTHROPIC_API_KEY=TOKEN,
        CLAUDE_CODE_MAX_RETRIES="0",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
    )


async def run_codex(folder: Path, url: str) -> tuple[int | None, str]:
    config = folder / "home" / ".codex" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(CODEX_CONFIG.replace("{url}", f"{url}/gateway/gpt"))
    return await run_cli(
        folder,
        *("codex", "exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", PROMPT),
        GATEWAY_KEY=TOKEN,
    )


CLIS = {"claude": (run_claude, "anthropic/claude/opus-4-6"), "codex": (run_codex, "openai/gpt/gpt-5")}


@pytest.mark.parametrize("cli", CLIS)
@pytest.mark.parametrize("errors", [(), ("429_retry_after",), ("529", "503")], ids=["plain", "429", "overload"])
async def test_a_cli_works_through_the_gateway_and_sees_no_refusal(
    cli: str, errors: tuple[str, ...], tmp_path: Path
) -> None:
    run, scope = CLIS[cli]
    scenario = Scenario(script=tuple(Step(error=error, retry_after=1.0) for error in errors))
    async with FakeProvider(scenario) as provider:
        accounts = (account(provider.url, "claude"), account(provider.url, "gpt", "openai"))
        async with GatewayHouse(*accounts) as house:
            code, output = await run(tmp_path, house.url)

            assert (code, house.in_flight) == (0, 0), output
    assert "of this conversation" in output
    assert {record.key for record in provider.requests} == {KEY}
    assert [record.error for record in provider.requests if record.error] == list(errors)
    assert house.measures.tokens.values[(scope, "total")] > 0
