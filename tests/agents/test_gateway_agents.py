"""The unmodified agent CLIs, pointed at the gateway by the engine: they work, and do not see a refusal."""

from pathlib import Path

import pytest
from tests.agents.agent_cli import AGENTS, GEMINI_SETTINGS, IS_INSTALLED, QWEN_SETTINGS, RUN_SECONDS, base_environ
from tests.gateway.daemon_process import Daemon, plan, run_to_its_end, settings

from paceline.testing import FakeProvider

QUIET = {
    ".codex/config.toml": "check_for_update_on_startup = false\n[analytics]\nenabled = false\n",
    ".gemini/settings.json": GEMINI_SETTINGS,
    ".qwen/settings.json": QWEN_SETTINGS,
}
"""Few retries, no telemetry and no updates. Nothing of it names a provider: the engine does that."""


@pytest.mark.agents
@pytest.mark.skipif(not IS_INSTALLED, reason="no agent CLIs here: make agents")
@pytest.mark.parametrize(
    ("agent", "provider_name", "model"),
    [
        ("claude", "anthropic", "claude-opus-4-6"),
        ("codex", "openai", "gpt-5"),
        ("gemini", "gemini", "gemini-2.5-pro"),
        ("qwen", "qwen", "qwen3-coder"),
    ],
)
def test_real_agents_work_through_the_gateway(tmp_path: Path, agent: str, provider_name: str, model: str) -> None:
    environ = base_environ(tmp_path, AGENTS[agent])
    for name, text in QUIET.items():
        (tmp_path / "home" / name).parent.mkdir()
        (tmp_path / "home" / name).write_text(text)
    with FakeProvider() as provider:
        provider.script("429_retry_after", retry_after=1.0)
        told = settings(provider.url, provider_name)
        daemon = Daemon(tmp_path, told, plan(agent, f'model = "{model}"'), environ, patience=RUN_SECONDS)

        units, in_flight = run_to_its_end(daemon)

        statuses = [request.status for request in provider.requests]
        keys = {request.key for request in provider.requests}
    assert (units["done"], in_flight, keys) == (1, {}, {"sk-real-key"})
    assert statuses[0] == 429
    assert set(statuses[1:]) == {200}
