"""Never metered, with the unmodified CLIs: over every configuration that would bill a key, no request carries one.

Runs on `make test-agents`. The fake provider counts the requests that carry the key. Each test runs in a network of its
own that has only loopback.
"""

import json
import time
from pathlib import Path

import pytest
from tests.agents.agent_cli import AGENTS, IS_INSTALLED
from tests.agents.agent_engine import AgentEngine

from paceline.agents import Account
from paceline.store import Unit
from paceline.testing import FakeProvider, VirtualClock

KEY, LOGIN = "sk-fake-0000", "sk-ant-oat01-fake"
CODEX_PROVIDER = (
    'model_provider = "fake"\n[model_providers.fake]\nname = "fake"\nbase_url = "{url}/v1"\nwire_api = "responses"\n'
)
CLAUDE_FILES: dict[str, dict[str, object]] = {
    "key in the user's settings": {"home/.claude/settings.json": {"env": {"ANTHROPIC_API_KEY": KEY}}},
    "key in the project's settings": {"work/.claude/settings.json": {"env": {"ANTHROPIC_API_KEY": KEY}}},
    "key in local settings": {"work/.claude/settings.local.json": {"env": {"ANTHROPIC_API_KEY": KEY}}},
    "token in settings": {"work/.claude/settings.json": {"env": {"ANTHROPIC_AUTH_TOKEN": KEY}}},
    "helper": {"home/.claude/settings.json": {"apiKeyHelper": f"echo {KEY}"}},
    "header": {"home/.claude/settings.json": {"env": {"ANTHROPIC_CUSTOM_HEADERS": f"x-api-key: {KEY}"}}},
    "Bedrock": {
        "work/.claude/settings.json": {
            "env": {
                "CLAUDE_CODE_USE_BEDROCK": "1",
                "ANTHROPIC_BEDROCK_BASE_URL": "{url}",
                "AWS_BEARER_TOKEN_BEDROCK": KEY,
                "AWS_REGION": "us-east-1",
            }
        }
    },
    "Foundry": {
        "work/.claude/settings.json": {
            "env": {
                "CLAUDE_CODE_USE_FOUNDRY": "1",
                "ANTHROPIC_FOUNDRY_BASE_URL": "{url}",
                "ANTHROPIC_FOUNDRY_API_KEY": KEY,
            }
        }
    },
    "Console login": {"home/.claude.json": {"primaryApiKey": KEY}},
}


def opencode_config(options: dict[str, object]) -> dict[str, object]:
    """Return the file of a provider with these options."""
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": "{url}/v1", **options},
        "models": {"gpt-5": {"name": "gpt-5"}},
    }
    return {"home/.config/opencode/opencode.json": {"provider": {"fake": provider}}}


OTHER_FILES: dict[str, dict[str, object]] = {
    "codex: key as login": {
        "home/.codex/auth.json": {"auth_mode": "apikey", "OPENAI_API_KEY": KEY},
        "home/.codex/config.toml": 'openai_base_url = "{url}/v1"\n',
    },
    "codex: provider with a key": {
        "home/.codex/config.toml": f'{CODEX_PROVIDER}experimental_bearer_token = "{KEY}"\n',
    },
    "codex: provider with a key in an env file": {
        "home/.codex/config.toml": f'{CODEX_PROVIDER}env_key = "FAKE_KEY"\n',
        "home/.codex/.env": f"FAKE_KEY={KEY}\n",
    },
    "gemini: env file": {"work/.env": f"GEMINI_API_KEY={KEY}\nGOOGLE_GEMINI_BASE_URL={{url}}\n"},
    "gemini: chosen method": {
        "home/.gemini/settings.json": {"security": {"auth": {"selectedType": "gemini-api-key"}}},
        "home/.gemini/.env": f"GEMINI_API_KEY={KEY}\nGOOGLE_GEMINI_BASE_URL={{url}}\n",
    },
    "qwen: env file": {"work/.env": f"OPENAI_API_KEY={KEY}\nOPENAI_BASE_URL={{url}}/v1\nOPENAI_MODEL=m\n"},
    "qwen: settings": {
        "home/.qwen/settings.json": {
            "env": {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "{url}/v1", "OPENAI_MODEL": "m"},
        }
    },
    "opencode: key as login": {"home/.local/share/opencode/auth.json": {"fake": {"type": "api", "key": KEY}}},
    "opencode: key in its configuration": opencode_config({"apiKey": KEY}),
    "opencode: key in a header": opencode_config({"headers": {"Authorization": f"Bearer {KEY}"}}),
}
NEVER_BILLED_HERE = frozenset({"codex: key as login", "gemini: env file", "opencode: key as login"})
"""Their own provider's address is fixed, or is tried for minutes before the fake one. Gemini CLI takes no key with
another address, unless its settings choose that method."""
ENVIRONMENT = {
    "ANTHROPIC_API_KEY": KEY,
    "ANTHROPIC_AUTH_TOKEN": KEY,
    "ANTHROPIC_CUSTOM_HEADERS": f"x-api-key: {KEY}",
    "CLAUDE_CODE_USE_FOUNDRY": "1",
    "ANTHROPIC_FOUNDRY_BASE_URL": "{url}",
    "ANTHROPIC_FOUNDRY_API_KEY": KEY,
    "OPENAI_API_KEY": KEY,
    "CODEX_API_KEY": KEY,
}

pytestmark = [
    pytest.mark.agents,
    pytest.mark.skipif(not IS_INSTALLED, reason="no agent CLIs here: make agents"),
]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(time.time())


def is_settled(unit: Unit) -> bool:
    return unit.counters.attempts > 0 and unit.state != "running"


def with_key(provider: FakeProvider) -> int:
    """Return how many requests carry the key, in whatever header."""
    return sum(record.key == KEY for record in provider.requests)


def login(provider: FakeProvider, vendor: str = "anthropic") -> Account:
    env = {"ANTHROPIC_BASE_URL": provider.url, "CLAUDE_CODE_OAUTH_TOKEN": LOGIN} if vendor == "anthropic" else {}
    return Account(name="max-1", provider=vendor, kind="subscription", env=env)


def write(folder: Path, files: dict[str, object], url: str) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((content if isinstance(content, str) else json.dumps(content)).replace("{url}", url))


@pytest.mark.parametrize("agent", ["claude", "claude-newest"])
@pytest.mark.parametrize("case", CLAUDE_FILES)
async def test_no_request_of_claude_code_carries_a_key_of_its_settings(
    agent: str, case: str, tmp_path: Path, clock: VirtualClock
) -> None:
    async with FakeProvider(clock=clock) as provider:
        async with AgentEngine(tmp_path, clock, agent=agent, account=login(provider)) as engine:
            write(tmp_path, CLAUDE_FILES[case], provider.url)
            unit = await engine.run_until(is_settled)

        assert (unit.state, unit.counters.failures, len(provider.requests)) == ("held", 0, 0)
    (file,) = CLAUDE_FILES[case]
    assert str(tmp_path / file) in str(unit.reason)
    assert KEY not in str(unit.reason)


@pytest.mark.parametrize("case", OTHER_FILES)
async def test_no_request_of_another_cli_carries_a_key_of_its_configuration(
    case: str, tmp_path: Path, clock: VirtualClock
) -> None:
    agent = case.partition(":")[0]
    async with FakeProvider(clock=clock) as provider:
        async with AgentEngine(tmp_path, clock, agent=agent, account=login(provider, "any")) as engine:
            write(tmp_path, OTHER_FILES[case], provider.url)
            unit = await engine.run_until(is_settled)

        assert (unit.state, unit.counters.failures, len(provider.requests)) == ("held", 0, 0)


@pytest.mark.parametrize("case", ["key in the project's settings", "token in settings", "Foundry"])
async def test_without_the_inspection_the_same_files_are_billed(case: str, tmp_path: Path, clock: VirtualClock) -> None:
    """The files of the tests above work: a metered account without a key of its own bills what its CLI bills."""
    async with FakeProvider(clock=clock) as provider:
        account = Account(name="work", provider="anthropic", env={"ANTHROPIC_BASE_URL": provider.url})
        async with AgentEngine(tmp_path, clock, agent="claude", account=account) as engine:
            write(tmp_path, CLAUDE_FILES[case], provider.url)
            await engine.run_until(is_settled)

        assert with_key(provider) > 0


@pytest.mark.parametrize("case", [case for case in OTHER_FILES if case not in NEVER_BILLED_HERE])
async def test_without_the_inspection_the_same_files_of_another_cli_are_billed(
    case: str, tmp_path: Path, clock: VirtualClock
) -> None:
    agent = case.partition(":")[0]
    async with FakeProvider(clock=clock) as provider:
        offline = {name: value for name, value in AGENTS[agent].env.items() if "_DISABLE_" in name}
        account = Account(name="work", provider="any", env=offline)
        async with AgentEngine(tmp_path, clock, agent=agent, account=account) as engine:
            write(tmp_path, OTHER_FILES[case], provider.url)
            await engine.run_until(is_settled)

        assert with_key(provider) > 0


@pytest.mark.parametrize("agent", ["claude", "claude-newest"])
async def test_no_request_carries_a_key_of_the_environment(agent: str, tmp_path: Path, clock: VirtualClock) -> None:
    async with FakeProvider(clock=clock) as provider:
        environ = {name: value.replace("{url}", provider.url) for name, value in ENVIRONMENT.items()}
        async with AgentEngine(tmp_path, clock, agent=agent, account=login(provider), environ=environ) as engine:
            unit = await engine.run_until(is_settled)

        assert (unit.state, with_key(provider)) == ("done", 0)
        assert {record.key for record in provider.requests} == {LOGIN}


async def test_no_request_of_codex_carries_a_key_of_the_environment(tmp_path: Path, clock: VirtualClock) -> None:
    async with FakeProvider(clock=clock) as provider:
        environ = {name: value.replace("{url}", provider.url) for name, value in ENVIRONMENT.items()}
        account = login(provider, "openai")
        async with AgentEngine(tmp_path, clock, agent="codex", account=account, environ=environ) as engine:
            write(
                tmp_path,
                {"home/.codex/config.toml": 'openai_base_url = "{url}/v1"\n[analytics]\nenabled = false\n'},
                provider.url,
            )
            await engine.run_until(is_settled)

        assert with_key(provider) == 0
