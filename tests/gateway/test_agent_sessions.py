"""Sessions whose agents make their calls through the gateway: a daemon, a plan, a provider, all of them real."""

import json
import os
import sys
from pathlib import Path

import pytest
from tests.certificates import make_certificate
from tests.gateway.daemon_process import Daemon, plan, run_to_its_end, settings

from paceline.testing import FakeProvider
from paceline.testing.provider import Scenario

CALLER = """
import json, os, sys, threading, urllib.error, urllib.request
def call():
    body = json.dumps({"model": "claude-opus-4-6", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]})
    request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", body.encode(), {
        "x-api-key": os.environ["ANTHROPIC_API_KEY"], "content-type": "application/json"})
    answers.append(json.load(urllib.request.urlopen(request))["type"])
def status(path):
    root = os.environ["ANTHROPIC_BASE_URL"].partition("/gateway/")[0]
    headers = {"authorization": "Bearer " + os.environ["ANTHROPIC_API_KEY"]}
    try: return urllib.request.urlopen(urllib.request.Request(root + path, None, headers)).status
    except urllib.error.HTTPError as error: return error.code
answers = []
threads = [threading.Thread(target=call) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
with open("seen.json", "w") as file: json.dump({
    "answers": answers, "env": dict(os.environ), "statuses": [status(path) for path in PATHS]}, file)
sys.exit(0 if answers == ["message"] * 4 else 1)
"""


ELSEWHERE = ["/v1/status", "/metrics", "/gateway/other/v1/models"]


@pytest.fixture
def here() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": "/nowhere", "TZ": "UTC"}


def test_calls_of_sessions_are_encrypted_where_the_daemon_has_a_certificate(
    tmp_path: Path, here: dict[str, str]
) -> None:
    certificate = make_certificate(tmp_path / "tls")
    (tmp_path / "caller.py").write_text(f"PATHS = {ELSEWHERE}{CALLER}")
    command = plan("command", f'model = "opus-4-6"\ncommand = ["{sys.executable}", "caller.py"]')
    with FakeProvider(Scenario(latency=0.05)) as provider:
        environ = here | {"SSL_CERT_FILE": str(certificate.authority)}
        daemon = Daemon(tmp_path, settings(provider.url, extra=certificate.settings), command, environ)

        units, _ = run_to_its_end(daemon)

        assert len(provider.requests) == 4
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert (units["done"], seen["answers"]) == (1, ["message"] * 4)
    assert seen["env"]["ANTHROPIC_BASE_URL"].startswith("https://127.0.0.1:")


@pytest.mark.parametrize("limit", [1, 3])
def test_a_sessions_calls_are_its_runs_and_share_its_place(tmp_path: Path, here: dict[str, str], limit: int) -> None:
    (tmp_path / "caller.py").write_text(f"PATHS = {ELSEWHERE}{CALLER}")
    command = plan("command", f'model = "opus-4-6"\ncommand = ["{sys.executable}", "caller.py"]')
    with FakeProvider(Scenario(latency=0.05)) as provider:
        other = f'[accounts.other]\nprovider = "anthropic"\nkind = "metered"\nbase_url = "{provider.url}"\n'
        extra = f'{other}[limits]\n"anthropic/work" = {limit}\n'
        daemon = Daemon(tmp_path, settings(provider.url, extra=extra), command, here)

        units, in_flight = run_to_its_end(daemon)

        requests = provider.requests
        assert (len(requests), provider.peak_concurrency) == (4, limit)
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert (units["done"], in_flight) == (1, {})
    assert {request.key for request in requests} == {"sk-real-key"}
    assert (seen["answers"], seen["statuses"]) == (["message"] * 4, [401, 401, 401])
    assert "sk-real-key" not in seen["env"].values()
    assert seen["env"]["ANTHROPIC_BASE_URL"].endswith(f"/gateway/work/~{seen['env']['PACELINE_ATTEMPT']}")


def test_a_run_without_the_daemon_names_what_is_missing(tmp_path: Path, here: dict[str, str]) -> None:
    daemon = Daemon(
        tmp_path, settings("http://127.0.0.1:9"), plan("command", 'model = "opus-4-6"\ncommand = ["true"]'), here
    )

    refused = daemon.give("run", "plan.toml")

    assert refused.returncode == 2
    assert "docs runs on the account 'work', whose sessions make their calls through the gateway" in refused.stderr
    assert "paceline add" in refused.stderr
