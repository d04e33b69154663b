"""A command imports what it needs and no more: people call some of them from a prompt, again and again."""

import subprocess
import sys

SLOW = (
    "httpx",
    "litestar",
    "textual",
    "uvicorn",
    "paceline.agents.known",
    "paceline.engine.engine",
    "paceline.simulation",
)
LIGHT = ("add", "events", "keys", "limits", "list", "pause", "results", "status", "token", "top", "units", "up", "why")


def test_light_commands_start_without_what_they_do_not_need() -> None:
    modules = modules_after(*LIGHT)

    assert [name for name in SLOW if name in modules] == []


def test_a_command_imports_no_other_command() -> None:
    commands = [name for name in modules_after("status") if name.startswith("paceline.cli.commands.")]

    assert commands == ["paceline.cli.commands.status"]


def modules_after(*commands: str) -> list[str]:
    """Return the modules that a new process has imported when it knows the options of the commands."""
    script = (
        "import sys; from paceline.cli.main import app\n"
        "for name in sys.argv[1:]: app([name, '--help'], standalone_mode=False)\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script, *commands], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1].split()
