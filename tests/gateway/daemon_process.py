"""A daemon in its own process, with one campaign on one account that uses its gateway."""

import contextlib
import json
import signal
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
from tests.warm_process import WarmProcess

PATIENCE_SECONDS = 60


class Daemon:
    """`paceline up` in its own folder, and commands beside it."""

    def __init__(
        self, folder: Path, settings: str, plan: str, environ: dict[str, str], *, patience: float = PATIENCE_SECONDS
    ) -> None:
        self.folder = folder
        self.patience = patience
        self.env = {**environ, "PACELINE_HOME": str(folder / "state"), "WORK_KEY": "sk-real-key"}
        (folder / "paceline.toml").write_text(settings)
        (folder / "plan.toml").write_text(plan)

    def give(self, *argv: str) -> "subprocess.CompletedProcess[str]":
        process = WarmProcess(*argv, cwd=self.folder, env=self.env)
        out, err = process.communicate(timeout=self.patience)
        return subprocess.CompletedProcess(argv, process.wait(), out, err)

    @contextlib.contextmanager
    def up(self) -> Iterator[httpx.Client]:
        process = WarmProcess("up", "--port", "0", "--json", cwd=self.folder, env=self.env)
        impatience = threading.Timer(self.patience, process.kill)
        impatience.start()
        try:
            assert process.stdout is not None
            base, _, token = json.loads(process.stdout.readline())["url"].partition("/?token=")
            headers = {"authorization": f"Bearer {token}"}
            trusted = ssl.create_default_context(cafile=self.env.get("SSL_CERT_FILE"))
            with httpx.Client(
                base_url=base, headers=headers, trust_env=False, timeout=self.patience, verify=trusted
            ) as client:
                yield client
            process.send_signal(signal.SIGTERM)
            _, complaints = process.communicate(timeout=self.patience)
            assert (process.returncode, complaints) == (0, "")
        finally:
            impatience.cancel()
            process.kill()
            process.communicate()


def settings(url: str, provider: str = "anthropic", extra: str = "") -> str:
    return (
        f'[accounts.work]\nprovider = "{provider}"\nkind = "metered"\nbase_url = "{url}"\nkey_env = "WORK_KEY"\n'
        f"via_gateway = true\n{extra}\n[providers.{provider}]\ncooldown = 0\n"
    )


def plan(agent: str, extra: str = "") -> str:
    return f"""
[campaign]
name = "docs"
agent = "{agent}"
accounts = ["work"]
max_attempts = 1
{extra}
[[unit]]
id = "a"
prompt = "Say hello."
"""


def run_to_its_end(daemon: Daemon) -> tuple[dict[str, int], dict[str, int]]:
    """Wait until all units have ended. Returns the units by state and the slots in flight by scope."""
    with daemon.up() as client:
        added = daemon.give("add", "plan.toml")
        assert added.returncode == 0, added.stderr
        names = "name=unit.done&name=unit.quarantined&name=unit.failed&name=unit.held"
        with client.stream("GET", f"/v1/events?after=0&{names}") as events:
            next(line for line in events.iter_lines() if line.startswith("data"))
        units = client.get("/v1/status").json()["units"]
        scopes = client.get("/concurrency/status").json()["providers"]
        return units, {scope["providerId"]: scope["inFlight"] for scope in scopes if scope["inFlight"]}
