"""The real gateway of OpenClaw with fake providers, for tests that also run over its double."""

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.agents.agent_cli import OPENCLAW, base_environ
from tests.executors.conftest import until

from paceline.testing import FakeProvider
from paceline.testing.provider import Scenario, Step

TOKEN = "testtoken"
PORT = 18789
START_SECONDS = 400.0
"""It takes 7 s on an idle machine, and a minute where much else runs."""
PROVIDERS = {
    "fake": Scenario(),
    "slow": Scenario(tokens_per_second=0.1),
    "limited": Scenario(script=(Step(error="429_usage_limit", times=None),)),
}


class RealOpenClaw:
    """The gateway as a process, with the models `fake/m1`, `slow/m1` and `limited/m1`."""

    token = TOKEN
    url = f"http://127.0.0.1:{PORT}"

    def __init__(self, folder: Path, max_children: int = 3) -> None:
        self._folder = folder
        self._max_children = max_children
        self._stack = ExitStack()
        self._starts_left = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        providers = {name: self._stack.enter_context(FakeProvider(each)) for name, each in PROVIDERS.items()}
        self._environ = base_environ(self._folder, OPENCLAW)
        config = self._folder / "home" / ".openclaw" / "openclaw.json"
        config.parent.mkdir()
        config.write_text(json.dumps(self._config({name: each.url for name, each in providers.items()})))
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._stack.close()

    def start(self) -> None:
        """Start the gateway, and wait until it is ready. It gives up by itself where much else runs: then once more."""
        self._starts_left = 3
        self._launch()
        until(self._is_ready, START_SECONDS)

    def _launch(self) -> None:
        self._starts_left -= 1
        with (self._folder / "gateway.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(OPENCLAW.program), "gateway", "run"],
                env=self._environ,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill the gateway with everything that it started."""
        if self._process is not None:
            with suppress(ProcessLookupError):  # it may have ended by itself
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _is_ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            assert self._starts_left, (self._folder / "gateway.log").read_text()
            self._launch()
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=10) as answer:
                return bool(json.load(answer)["ready"])
        except (OSError, urllib.error.URLError, ValueError):
            return False

    def _config(self, urls: dict[str, str]) -> dict[str, Any]:
        model = {"id": "m1", "name": "m1", "reasoning": False, "input": ["text"], "contextWindow": 196608}
        model |= {"maxTokens": 8192, "cost": {"input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0}}
        providers = {
            name: {"baseUrl": f"{url}/v1", "apiKey": "k", "api": "openai-completions", "models": [model]}
            for name, url in urls.items()
        }
        subagents = {"maxChildrenPerAgent": self._max_children, "maxConcurrent": 8}
        gateway = {"mode": "local", "port": PORT, "bind": "loopback", "auth": {"mode": "token", "token": TOKEN}}
        return {
            "gateway": gateway | {"tools": {"allow": ["sessions_spawn"]}},
            "agents": {
                "defaults": {
                    "model": {"primary": "fake/m1"},
                    "workspace": str(self._folder / "workspace"),
                    "subagents": subagents,
                }
            },
            "tools": {"profile": "full"},
            "models": {"mode": "merge", "providers": providers},
        }


def children_of(url: str, parent: str) -> list[tuple[str, str]]:
    """Return the label and the status of each child of a session, the youngest first."""
    body = {"tool": "subagents", "args": {"action": "list"}, "sessionKey": parent}
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/tools/invoke", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        tasks = json.load(answer)["result"]["details"]["tasks"]
    return [(task["label"], task["status"]) for task in tasks]
