"""The real OpenClaw as an agent CLI, against a fake provider: `make test-openclaw`."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.agents.agent_cli import (
    FAKE_KEY,
    IS_OPENCLAW_INSTALLED,
    OPENCLAW,
    OPENCLAW_CONFIG,
    RUN_SECONDS,
    AgentRun,
    base_environ,
    connect,
    end,
    run_agent,
)
from tests.gateway.daemon_process import Daemon, plan, settings

from paceline.agents import Task
from paceline.detect import StreamReader
from paceline.testing import FakeProvider
from paceline.testing.provider import Scenario, Step

pytestmark = [
    pytest.mark.openclaw,
    pytest.mark.skipif(not IS_OPENCLAW_INSTALLED, reason="OpenClaw is not installed: make openclaw"),
]


def read(run: AgentRun) -> StreamReader:
    reader = StreamReader("openclaw", tz="UTC")
    reader.feed(run.stderr.encode(), channel="stderr", seen_at=1.0)
    reader.feed(run.stdout.encode(), channel="stdout", seen_at=1.0)
    reader.close(exit_code=run.exit_code, seen_at=1.0)
    return reader


def task(folder: Path) -> Task:
    work = folder / "work"
    work.mkdir()
    return Task(unit_id="c/a", attempt_id="a-1", prompt="-- say hi", cwd=str(work), model="fake/m1")


def test_a_run_reports_its_answer_its_tokens_and_its_session(tmp_path: Path) -> None:
    with FakeProvider() as provider:
        run = run_agent(OPENCLAW, tmp_path, provider, task(tmp_path))
        [request] = provider.requests

    reader = read(run)
    assert run.exit_code == 0, run.stderr
    assert any("-- say hi" in prompt for prompt in request.prompts)
    assert (reader.outcome, reader.tokens) == ("success", request.input_tokens + request.output_tokens)
    assert reader.session_id


def test_a_spent_window_of_the_provider_is_recognised_although_its_answer_calls_it_a_rate_limit(tmp_path: Path) -> None:
    with FakeProvider(Scenario(script=(Step(error="429_usage_limit", times=None),))) as provider:
        run = run_agent(OPENCLAW, tmp_path, provider, task(tmp_path))

    assert '"message": "⚠️ API rate limit reached' in run.stdout
    assert (run.exit_code, read(run).outcome) == (1, "quota_window")


def test_through_our_gateway_a_spent_window_is_closed_until_the_reset_that_openclaw_would_lose(tmp_path: Path) -> None:
    with FakeProvider(Scenario(script=(Step(error="429_usage_limit", times=None, resets_in=7200.0),))) as provider:
        environ = base_environ(tmp_path, OPENCLAW)
        daemon = Daemon(tmp_path, settings(provider.url, "openai"), plan("command"), environ, patience=RUN_SECONDS)
        with daemon.up() as client:
            url = str(client.base_url).rstrip("/")
            config = OPENCLAW_CONFIG.replace("{url}", f"{url}/gateway/work")
            config = config.replace(FAKE_KEY, client.headers["authorization"].removeprefix("Bearer "))
            connect(OPENCLAW, tmp_path / "home", provider.url, {".openclaw/openclaw.json": config})
            argv = [str(OPENCLAW.program), *OPENCLAW.argv]
            process = subprocess.Popen(
                argv, cwd=tmp_path, env=environ, stdout=subprocess.DEVNULL, start_new_session=True
            )
            try:
                with client.stream("GET", "/v1/events?after=0&name=window.closed") as events:
                    line = next(line for line in events.iter_lines() if line.startswith("data"))
            finally:
                end(process)

    closed = json.loads(line.removeprefix("data:"))
    assert closed["scope"] == "openai/work"
    assert closed["fields"]["resets_at"] - closed["at"] == pytest.approx(7200.0, abs=5.0)
