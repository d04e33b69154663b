"""The processes of the benchmark: start, warm-up, measurement and end."""

import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import msgspec

from benchmarks.gateway.load import Figures, Task

ROOT = Path(__file__).resolve().parents[2]
LITELLM = ROOT / ".venv-bench" / "bin" / "litellm"
TOKEN = f"sk-{secrets.token_hex(32)}"
"""The key of the clients, strong enough for LiteLLM."""
START_SECONDS = 180.0
PATH = "/v1/chat/completions"
LITELLM_CONFIG = """\
model_list:
  - model_name: gpt-5
    litellm_params: {{model: openai/gpt-5, api_base: "{url}/v1", api_key: sk-benchmark}}
general_settings:
  pass_through_endpoints:
    - path: "/through"
      target: "{url}/v1/chat/completions"
      headers: {{Authorization: "Bearer sk-benchmark"}}
litellm_settings: {{telemetry: false}}
"""


class Contender:
    """One server: a port, a path for chat completions, the key that its clients present, and its process."""

    def __init__(self, name: str, process: "subprocess.Popen[str]", port: int, path: str, *, key: str = TOKEN) -> None:
        self.name = name
        self.process = process
        self.port = port
        self.path = path
        self.key = key
        self.keys: list[str] = []
        """Other keys that it accepts."""

    def variant(self, name: str, *, path: str | None = None, key: str | None = None) -> "Contender":
        """Return the same server, used in another way."""
        return Contender(name, self.process, self.port, path or self.path, key=key or self.key)

    def load(self, **task: object) -> Figures:
        """Run the clients against this server."""
        fields = {
            "port": self.port, "path": self.path, "model": "gpt-5", "headers": {"authorization": f"Bearer {self.key}"},
        }  # fmt: skip
        encoded = msgspec.json.encode(msgspec.convert(fields | task, Task)).decode()
        ran = subprocess.run(
            [sys.executable, "-m", "benchmarks.gateway.load", encoded], cwd=ROOT, capture_output=True, text=True
        )
        if ran.returncode:
            raise RuntimeError(f"the clients of {self.name} failed:\n{ran.stderr[-2000:]}")
        return msgspec.json.decode(ran.stdout, type=Figures)

    @property
    def resident_megabytes(self) -> float:
        return self._status("VmRSS")

    @property
    def peak_megabytes(self) -> float:
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        """Reset the peak memory to the memory that is resident now."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def _status(self, field: str) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) / 1024
        raise RuntimeError(f"{self.name} is gone")

    @property
    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / 100


class Field:
    """All contenders, each in its own process, in front of the same upstream."""

    def __init__(self, *, latency: float = 0.0, before: Path | None = None) -> None:
        """`latency` is that of the upstream in seconds. `before` is another checkout, whose gateway runs as well."""
        self._latency = latency
        self._before = before
        self._processes: list[subprocess.Popen[str]] = []
        self._folder = tempfile.TemporaryDirectory(prefix="paceline-bench-")

    def __enter__(self) -> Self:
        self.direct = self._start("direct", "upstream", PATH, str(self._latency))
        url = f"http://127.0.0.1:{self.direct.port}"
        self.bare = self._start("bare aiohttp proxy", "bare_proxy", PATH, url)
        by_token = self._start("paceline gateway, token", "ours", f"/gateway/work{PATH}", url, TOKEN)
        plain, ruled = by_token.keys
        self.ours = by_token.variant("paceline gateway, a client's key", key=plain)
        self.ways = [
            by_token,
            self.ours,
            by_token.variant("paceline gateway, a key with all rules", key=ruled),
            by_token.variant("paceline gateway, a pool of two accounts", path=f"/gateway/team{PATH}", key=plain),
        ]
        """Our gateway with each kind of login."""
        self.earlier = None
        if self._before is not None:
            self.earlier = self._start(
                "paceline gateway before", "ours", f"/gateway/work{PATH}", url, TOKEN, root=self._before
            )
        self.litellm = self._start_litellm(url) if LITELLM.exists() else None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait()
        self._folder.cleanup()

    def _start(self, name: str, module: str, path: str, *arguments: str, root: Path = ROOT) -> Contender:
        command = [sys.executable, "-m", f"benchmarks.gateway.{module}", *arguments]
        environ = os.environ | {"PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
        process = subprocess.Popen(
            command, cwd=root, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._processes.append(process)
        assert process.stdout is not None
        port, *keys = process.stdout.readline().split()
        contender = Contender(name, process, int(port), path)
        contender.keys = keys
        return contender

    def _start_litellm(self, url: str) -> Contender:
        config = Path(self._folder.name) / "litellm.yaml"
        config.write_text(LITELLM_CONFIG.format(url=url))
        port = free_port()
        process = subprocess.Popen(
            [str(LITELLM), "--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"],
            cwd=self._folder.name,
            env=os.environ | {"LITELLM_MASTER_KEY": TOKEN},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._processes.append(process)
        deadline = time.monotonic() + START_SECONDS
        while not _answers(f"http://127.0.0.1:{port}/health/liveliness"):
            if time.monotonic() > deadline or process.poll() is not None:
                raise RuntimeError("LiteLLM did not start; try .venv-bench/bin/litellm by hand")
            time.sleep(0.5)
        return Contender("LiteLLM proxy, chat", process, port, PATH)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2.0).status_code == 200
    except httpx.HTTPError:
        return False
