"""What `permissions` lets the unmodified agent CLIs do, in a folder that nobody has ever trusted.

The fake provider makes each agent write a file in the folder, and then run a command there. The file system shows what
the CLI let it do.
"""

from pathlib import Path

import pytest
from tests.agents.agent_cli import AGENTS, IS_INSTALLED, run_agent

from paceline.agents import Task
from paceline.testing import FakeProvider
from paceline.testing.provider import Scenario, Step, ToolCall

WRITTEN, RAN = "written.txt", "ran.txt"
COMMAND = f"head -c 1 /etc/hostname > {RAN}"
"""Not one of the commands that Claude Code takes for edits of files."""
PATCH = f"*** Begin Patch\n*** Add File: {WRITTEN}\n+x\n*** End Patch"
DESCRIBED: dict[str, object] = {"command": COMMAND, "description": "Keeps a letter"}
WRITE_FILE = ToolCall(name="write_file", arguments={"file_path": "{file}", "content": "x"})
TOOLS = {
    "claude": (
        ToolCall(name="Write", arguments={"file_path": "{file}", "content": "x"}),
        ToolCall(name="Bash", arguments=DESCRIBED),
    ),
    "codex": (
        ToolCall(name="exec_command", arguments={"cmd": f"echo x > {WRITTEN}"}),
        ToolCall(name="exec_command", arguments={"cmd": COMMAND}),
    ),
    "gemini": (WRITE_FILE, ToolCall(name="run_shell_command", arguments={"command": COMMAND})),
    "qwen": (WRITE_FILE, ToolCall(name="run_shell_command", arguments={"command": COMMAND, "is_background": False})),
    "opencode": (
        ToolCall(name="apply_patch", arguments={"patchText": PATCH}),
        ToolCall(name="bash", arguments=DESCRIBED),
    ),
    "copilot": (
        ToolCall(name="create", arguments={"path": "{file}", "file_text": "x"}),
        ToolCall(name="bash", arguments=DESCRIBED),
    ),
}
WHAT_THEY_MAY = {"read": [], "edit": [WRITTEN], "full": [RAN, WRITTEN]}

pytestmark = [pytest.mark.agents, pytest.mark.skipif(not IS_INSTALLED, reason="no agent CLIs here: make agents")]


def script(profile: str, work: Path) -> Scenario:
    """Return a provider whose first answer writes the file, and whose second runs the command.

    opencode asks for a title of the conversation beside the first answer; that request has no tools.
    """
    write, command = TOOLS[profile]
    arguments: dict[str, object] = {
        key: str(value).replace("{file}", str(work / WRITTEN)) for key, value in write.arguments.items()
    }
    write = ToolCall(name=write.name, arguments=arguments)
    first = Step(error="ok", tool=write, times=2 if profile == "opencode" else 1)
    second = Step(error="ok", tool=command, answers=1)
    return Scenario(script=(second, first) if profile == "opencode" else (first, second))


@pytest.mark.parametrize("level", ["read", "edit", "full"])
@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_may_do_in_an_untrusted_folder_what_its_permissions_say(name: str, level: str, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    task = Task(unit_id="c/u", attempt_id="a", prompt="Do it.", cwd=str(work), permissions=level)

    with FakeProvider(script(AGENTS[name].profile, work)) as provider:
        run = run_agent(AGENTS[name], tmp_path, provider, task)

    expected = WHAT_THEY_MAY[level]
    if (name, level) == ("codex", "edit"):
        expected = WHAT_THEY_MAY["full"]  # its sandbox lets commands run, and keeps them in the folder
    assert sorted(path.name for path in work.iterdir()) == expected, run
    assert run.exit_code == 0, run
