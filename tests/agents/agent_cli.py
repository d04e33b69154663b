"""The real agent CLIs as `make agents` installs them, and one run of one of them against a `FakeProvider`.

Tests with the marker `agents` run inside a network namespace that has only loopback (`conftest.py`). A CLI gets an
empty home, a fake key and a few named variables; nothing of the person's own.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import msgspec

from paceline.agents import Task, load_agent, prepare_session
from paceline.agents.launch import EnvironmentRules
from paceline.testing import FakeProvider

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = ROOT / ".agents"
IS_INSTALLED = (INSTALLED / ".installed").exists()
FAKE_KEY = "sk-fake-0000"
RUN_SECONDS = 600.0
"""Far more than the slowest CLI needs where much else runs: qwen computes for 7 s of CPU time after its last word."""
GRACE_SECONDS = 5.0
"""A CLI may clean up after SIGTERM; then it is killed."""
CAPPED_EXIT_CODE = 124
"""The exit code of a run that took too long, as of `timeout`."""

CODEX_CONFIG = """\
model = "gpt-5"
model_provider = "fake"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.fake]
name = "fake"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "FAKE_KEY"
request_max_retries = 1
stream_max_retries = 1
"""
GEMINI_SETTINGS = """\
{"general": {"maxAttempts": 2, "disableAutoUpdate": true, "enableAutoUpdate": false, "disableUpdateNag": true},
 "security": {"auth": {"selectedType": "gemini-api-key"}},
 "privacy": {"usageStatisticsEnabled": false}, "telemetry": {"enabled": false}}
"""
QWEN_SETTINGS = """\
{"general": {"disableAutoUpdate": true, "enableAutoUpdate": false}, "privacy": {"usageStatisticsEnabled": false},
 "telemetry": {"enabled": false}, "model": {"generationConfig": {"maxRetries": 0}}}
"""
OPENCODE_CONFIG = """\
{"autoupdate": false, "share": "disabled", "provider": {"fake": {"npm": "@ai-sdk/openai-compatible", "name": "Fake",
 "options": {"baseURL": "{url}/v1", "apiKey": "sk-fake-0000"},
 "models": {"gpt-5": {"name": "gpt-5", "limit": {"context": 100000, "output": 8000}}}}}}
"""
OPENCLAW_CONFIG = """\
{"agents": {"defaults": {"model": {"primary": "fake/m1"}}},
 "models": {"mode": "merge", "providers": {"fake": {"baseUrl": "{url}/v1", "apiKey": "sk-fake-0000",
  "api": "openai-completions", "models": [{"id": "m1", "name": "m1", "reasoning": false, "input": ["text"],
  "cost": {"input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0}, "contextWindow": 196608, "maxTokens": 8192}]}}}}
"""
CLAUDE_ENV = {
    "ANTHROPIC_BASE_URL": "{url}",
    "ANTHROPIC_API_KEY": FAKE_KEY,
    "CLAUDE_CODE_MAX_RETRIES": "2",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
}
QWEN_ENV = {"OPENAI_BASE_URL": "{url}/v1", "OPENAI_API_KEY": FAKE_KEY, "OPENAI_MODEL": "qwen3-coder"}
NODE_22 = "node-22"
IS_OPENCLAW_INSTALLED = (INSTALLED / "openclaw" / ".installed").exists()


class InstalledAgent(msgspec.Struct, frozen=True, kw_only=True):
    """One installed version of a CLI, and the settings that connect it to the fake provider only.

    `{url}` in `env` and `files` is the provider's address. Files are relative to the home.
    """

    profile: str
    """The name of its profile in `paceline.agents`."""
    package: str
    """Its folder in .agents/."""
    command: str
    argv: tuple[str, ...]
    """A plain run, for recordings. Tests take the profile's command line."""
    env: dict[str, str]
    files: dict[str, str] = {}
    model: str | None = None
    """The model that the profile's command line must name, if the CLI has no default here."""
    args: tuple[str, ...] = ()
    """More arguments of the profile's command line that connect it to the fake provider."""
    node: str | None = None
    """The folder of the Node.js it needs, if it is not the machine's."""

    @property
    def program(self) -> Path:
        return INSTALLED / self.package / "node_modules" / ".bin" / self.command

    @property
    def folders(self) -> list[str]:
        """Return the folders that must come first in PATH."""
        packages = [self.package, *([self.node] if self.node else [])]
        node = None if self.node else shutil.which("node")
        own = [str(INSTALLED / package / "node_modules" / ".bin") for package in packages]
        return [*own, *([str(Path(node).parent)] if node else [])]

    @property
    def version(self) -> str:
        lock = json.loads((INSTALLED / self.package / "package-lock.json").read_text())
        name = self.package.removesuffix("-newest")
        found = (entry["version"] for path, entry in lock["packages"].items() if path.endswith("/" + name))
        return str(next(found))


_CLAUDE = InstalledAgent(
    profile="claude",
    package="claude-code",
    command="claude",
    argv=("-p", "hi", "--output-format", "stream-json", "--verbose"),
    env=CLAUDE_ENV,
)
_QWEN = InstalledAgent(
    profile="qwen",
    package="qwen-code",
    command="qwen",
    argv=("-p", "hi", "-o", "stream-json", "--auth-type", "openai"),
    args=("--auth-type", "openai"),
    env=QWEN_ENV,
    files={".qwen/settings.json": QWEN_SETTINGS},
)
AGENTS = {
    "claude": _CLAUDE,
    "claude-newest": msgspec.structs.replace(_CLAUDE, package="claude-code-newest", node=NODE_22),
    "codex": InstalledAgent(
        profile="codex",
        package="codex",
        command="codex",
        argv=("exec", "--json", "--skip-git-repo-check", "hi"),
        env={"FAKE_KEY": FAKE_KEY},
        files={".codex/config.toml": CODEX_CONFIG},
    ),
    "gemini": InstalledAgent(
        profile="gemini",
        package="gemini-cli",
        command="gemini",
        argv=("-m", "gemini-2.5-pro", "-p", "hi", "-o", "stream-json", "--skip-trust"),
        env={"GOOGLE_GEMINI_BASE_URL": "{url}", "GEMINI_API_KEY": FAKE_KEY},
        files={".gemini/settings.json": GEMINI_SETTINGS},
        model="gemini-2.5-pro",
    ),
    "opencode": InstalledAgent(
        profile="opencode",
        package="opencode-ai",
        command="opencode",
        argv=("run", "--format", "json", "--print-logs", "--log-level", "ERROR", "--model", "fake/gpt-5", "hi"),
        env={
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        },
        files={".config/opencode/opencode.json": OPENCODE_CONFIG},
        model="fake/gpt-5",
    ),
    "qwen": _QWEN,
    "qwen-newest": msgspec.structs.replace(_QWEN, package="qwen-code-newest", node=NODE_22),
    "copilot": InstalledAgent(
        profile="copilot",
        package="copilot",
        command="copilot",
        argv=("-p", "hi", "--output-format", "json", "--no-auto-update", "--allow-all-tools"),
        env={
            "COPILOT_PROVIDER_BASE_URL": "{url}/v1",
            "COPILOT_PROVIDER_TYPE": "openai",
            "COPILOT_PROVIDER_API_KEY": FAKE_KEY,
            "COPILOT_PROVIDER_WIRE_API": "completions",
            "COPILOT_MODEL": "gpt-5",
            "COPILOT_OFFLINE": "true",
        },
    ),
}
OPENCLAW = InstalledAgent(
    profile="openclaw",
    package="openclaw",
    command="openclaw",
    argv=("agent", "exec", "--json", "--timeout", "0", "hi"),
    env={"OPENCLAW_NO_AUTO_UPDATE": "1"},
    files={".openclaw/openclaw.json": OPENCLAW_CONFIG},
)
"""Installed by itself, with its own Node.js. It has tests of its own."""


class AgentRun(msgspec.Struct, frozen=True, kw_only=True):
    """One finished run of a CLI. `exit_code` is that of a shell: 128 + n for a signal."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str
    seconds: float


def base_environ(folder: Path, *agents: InstalledAgent) -> dict[str, str]:
    """Return where the CLIs are, an empty home in the folder, and nothing of the person's own."""
    home, temporary = folder / "home", folder / "tmp"
    home.mkdir(exist_ok=True, parents=True)
    temporary.mkdir(exist_ok=True)
    folders = [each for agent in agents for each in agent.folders]
    return {
        "PATH": os.pathsep.join(dict.fromkeys([*folders, "/usr/local/bin", "/usr/bin", "/bin"])),
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TZ": "UTC",
        "NO_COLOR": "1",
    }


def connect(agent: InstalledAgent, home: Path, url: str, files: dict[str, str] | None = None) -> dict[str, str]:
    """Write the CLI's configuration into the home, and return the variables that point it at the fake provider."""
    for name, text in (agent.files | (files or {})).items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text.replace("{url}", url))
    return {name: value.replace("{url}", url) for name, value in agent.env.items()}


def run_agent(
    agent: InstalledAgent,
    folder: Path,
    provider: FakeProvider,
    task: Task,
    *,
    env: dict[str, str] | None = None,
    files: dict[str, str] | None = None,
) -> AgentRun:
    """Run a CLI once, with the command line of its profile, and wait for its end.

    `folder` holds its home (`home`) and its temporary files. An empty value in `env` removes a variable.
    """
    environ = base_environ(folder, agent) | connect(agent, folder / "home", provider.url, files) | (env or {})
    environ = {name: value.replace("{url}", provider.url) for name, value in environ.items() if value}
    task = msgspec.structs.replace(task, model=task.model or agent.model, args=(*agent.args, *task.args))
    rules = EnvironmentRules(env_pass=tuple(agent.env), allow_metered=True)
    session = prepare_session(load_agent(agent.profile), task, None, environ, rules=rules)
    started = time.monotonic()
    out, err = folder / "stdout", folder / "stderr"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            session.argv,
            cwd=session.cwd,
            env=session.env,
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        code = wait_for(process, session.stdin)
    return AgentRun(
        argv=session.argv,
        exit_code=code,
        stdout=out.read_text(errors="replace"),
        stderr=err.read_text(errors="replace"),
        seconds=time.monotonic() - started,
    )


def wait_for(process: "subprocess.Popen[bytes]", stdin: bytes, seconds: float = RUN_SECONDS) -> int:
    """Wait for the end of a CLI, or end it, and return its exit code as a shell reports it."""
    try:
        process.communicate(stdin, timeout=seconds)
    except subprocess.TimeoutExpired:
        end(process)
        return CAPPED_EXIT_CODE
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a CLI and all that it started."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
