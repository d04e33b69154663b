"""Run the night with the real Claude Code and Codex CLIs, against models that are played by a fake provider.

python examples/overnight/repository.py FOLDER
python examples/overnight/fake_models.py FOLDER -- paceline run metric.toml science.toml

The command runs in FOLDER with an empty home and a fake key. The CLIs, the worktrees, the checks and the commits are
real; no model is asked and nothing is billed. The models overlook rounding at first, as `repository.STAND_IN` does.
"""

import argparse
import json
import os
import subprocess
from pathlib import Path

from repository import METRIC, SCIENCE, Function

from paceline.testing import FakeProvider
from paceline.testing.provider import Scenario, Step, ToolCall

KEPT_VARIABLES = ("PATH", "TERM", "LANG", "TZ", "COLUMNS", "PYTHONPATH")
MODEL_SECONDS = 1.0
"""The time until a model begins to answer."""
CODEX_CONFIG = """\
model = "gpt-5"
model_provider = "fake"
check_for_update_on_startup = false
[model_providers.fake]
name = "fake"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "CODEX_API_KEY"
"""
EMPTY_HOME = "empty-home"
FAKE_KEY = "sk-fake-0000"
LOGIN = {
    "accessToken": "sk-ant-oat01-fake",
    "refreshToken": "sk-ant-ort01-fake",
    "expiresAt": 4102444800000,  # in the year 2100
    "scopes": ["user:inference", "user:profile"],
    "subscriptionType": "max",
}


def file_of(function: Function, body: str) -> str:
    return f"def {function.name}(x):\n    return {body}\n"


def claude_calls(function: Function, body: str, workspace: Path) -> list[ToolCall]:
    """Return the tools that Claude Code is asked to use: it edits only what it has read."""
    path = workspace / "measures" / f"{function.name}.py"
    calls = [ToolCall(name="Write", arguments={"file_path": str(path), "content": file_of(function, body)})]
    if function.is_listed:
        readme = {"file_path": str(workspace / "README.md")}
        last = "about measures:\n"
        edit = {"old_string": last, "new_string": f"{last}\n- {function.name}\n"}
        calls += [ToolCall(name="Read", arguments=readme), ToolCall(name="Edit", arguments=readme | edit)]
    return calls


def codex_calls(function: Function, body: str) -> list[ToolCall]:
    """Return the commands that Codex is asked to run."""
    lines = [f"cat > measures/{function.name}.py <<'END'\n{file_of(function, body)}END"]
    return [ToolCall(name="exec_command", arguments={"cmd": line}) for line in lines]


def steps_of(function: Function, rounds: list[list[ToolCall]]) -> list[Step]:
    """Return the answers of the conversation about one function: in each round its tools, then a sentence."""
    about = f"*measures/{function.name}.py*"
    said = f"I wrote {function.name} in measures/{function.name}.py."
    steps: list[Step] = []
    for calls in rounds:
        steps += [Step(error="ok", prompts=about, tool=call, text="I will change this file.") for call in calls]
        steps.append(Step(error="ok", prompts=about, text=said))
    return [*steps, Step(error="ok", prompts=about, text="I find nothing to change.", times=None)]


def script_of(workspaces: Path) -> tuple[Step, ...]:
    """Return the answers of both models to all tasks."""
    steps: list[Step] = []
    for function in METRIC:
        bodies = dict.fromkeys((function.body, function.result))
        workspace = workspaces / "metric" / function.name
        steps += steps_of(function, [claude_calls(function, body, workspace) for body in bodies])
    for function in SCIENCE:
        bodies = dict.fromkeys((function.body, function.result))
        steps += steps_of(function, [codex_calls(function, body) for body in bodies])
    return tuple(steps)


def connect(folder: Path, url: str) -> None:
    """Point both CLIs at the fake provider: Claude Code in the settings of its account, Codex in its own file."""
    home, settings = folder / EMPTY_HOME, folder / "paceline.toml"
    write(home / ".codex" / "config.toml", CODEX_CONFIG.format(url=url))
    write(home / ".claude-max-1" / ".credentials.json", json.dumps({"claudeAiOauth": LOGIN}))
    login = 'CLAUDE_CONFIG_DIR = "~/.claude-max-1"'
    if "ANTHROPIC_BASE_URL" not in settings.read_text():
        write(settings, settings.read_text().replace(login, f'{login}, ANTHROPIC_BASE_URL = "{url}"'))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description="Run a command while a fake provider plays the models.")
    parser.add_argument("folder", type=Path, help="a folder that repository.py has made")
    parser.add_argument("--port", type=int, default=8765)
    parser.add_argument("command", nargs="+", help="-- and the command, such as: paceline run metric.toml")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    environ = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    environ |= {"HOME": str(folder / EMPTY_HOME), "PACELINE_HOME": str(folder / "home"), "TEAM_KEY": FAKE_KEY}
    scenario = Scenario(script=script_of(folder / "home" / "workspaces"), latency=MODEL_SECONDS)
    with FakeProvider(scenario, port=arguments.port) as provider:
        connect(folder, provider.url)
        raise SystemExit(subprocess.run(arguments.command, cwd=folder, env=environ, check=False).returncode)


if __name__ == "__main__":
    main()
