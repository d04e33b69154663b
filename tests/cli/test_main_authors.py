"""Every change at a terminal says who made it: all commands that change something are tried."""

from pathlib import Path

from tests.cli.commands.test_accept import leave_unverified
from tests.cli.conftest import Workspace, decode_lines

from paceline.cli.main import COMMANDS
from paceline.daemon.home import open_home
from paceline.engine.capacity.governor_state import GOVERNOR_STATE
from paceline.engine.command_log import is_change, person

ONLY_READ = {
    *("preview", "forecast", "list", "status", "units", "why", "logs", "diff", "events", "doctor", "results", "show"),
    *("summary", "limits", "detect", "report", "gateway"),
}
ELSEWHERE = {
    "exec": "programs use capacity",
    "demo": "it has a home of its own",
    "apply": "it changes a repository, whose history says who did it",
    "export": "it only reads; a file has the same events as the home",
    "import": "the home has the events of the file, with their authors",
    "top": "its keys give the commands that are tried here",
    "worker": "it changes nothing here; the leader does",
    "up": "it registers the tokens of the home, as `token` does",
}
CHANGES: list[tuple[str, ...]] = [
    ("add", "docs.toml"),
    ("pause", "docs"),
    ("resume", "--all"),
    ("pause", "docs/b", "docs/c"),
    ("resume", "docs/b"),
    ("cancel", "docs/b", "--yes"),
    ("retry", "docs/b"),
    ("accept", "docs/a"),
    ("cancel", "docs", "--yes"),
    ("retry", "docs"),
    ("cancel", "docs", "--yes"),
    ("delete", "docs", "--yes"),
    ("run", "quick.toml"),
    ("gc",),
    ("pool", "3"),
    ("limit", "umans", "5"),
    ("limit", "umans", "default"),
    ("limit", "campaign:quick", "2"),
    ("cooldown", "umans", "auto"),
    ("restore", "umans"),
    ("restore", "--unreadable"),
    ("token",),
    ("token", "--rotate"),
    ("token", "--revoke", person()),
    ("keys", "create", "team"),
    ("keys", "revoke", "team"),
    ("hosts", "add", "box1"),
    ("hosts", "token", "box1", "--rotate"),
    ("hosts", "remove", "box1"),
]
"""Every other command, in an order in which each has something to change."""


def test_every_command_that_changes_something_is_tried_here() -> None:
    known = {name for names in COMMANDS.values() for name in names}

    assert {argv[0] for argv in CHANGES} | ONLY_READ | set(ELSEWHERE) == known


def test_every_change_at_a_terminal_says_who_made_it(workspace: Workspace) -> None:
    workspace.plan("true", "a", "b", "c")
    workspace.plan("true", "a", name="quick")
    workspace.write("paceline.toml", "[limits]\numans = 3\n")
    unsigned = []
    for argv in CHANGES:
        if argv[0] == "accept":
            leave_unverified()
        if argv == ("restore", "--unreadable"):
            _damage_state()
        before = _last_id()
        workspace.run(*argv)
        with open_home() as home:
            changes = [each.event for each in home.store.events(after=before) if is_change(each.event)]
        if not changes or any(change.fields.get("by") != f"{person()} (cli)" for change in changes):
            unsigned.append(argv)

    assert unsigned == []


def _last_id() -> int:
    with open_home() as home:
        return home.last_event_id()


def _damage_state() -> None:
    with open_home() as home:
        home.store.save_state(GOVERNOR_STATE, b"{")


def test_the_audit_shows_who_did_what_to_what(workspace: Workspace) -> None:
    plan: Path = workspace.plan("true", "a", "b")
    workspace.run("run", plan)
    workspace.run("limit", "umans", "none")
    workspace.run("pause", "docs")
    workspace.run("token")

    lines = [line.partition(" UTC ") for line in workspace.run("events", "--audit").stdout.splitlines()]
    entries = decode_lines(workspace.run("events", "--audit", "--limit", 2, "--json").stdout)
    after_first = decode_lines(workspace.run("events", "--audit", "--after", 1, "--limit", 1, "--json").stdout)

    who = f"{person()} (cli)"
    assert [what for _, _, what in lines] == [
        f"{who}: add docs",
        f"{who}: limit umans none",
        f"{who}: pause docs",
        f"{who}: create token {person()}",
    ]
    assert [(each["by"], each["what"], each["target"], each["name"]) for each in entries] == [
        (who, "pause", "docs", "control.campaigns"),
        (who, "create token", person(), "control.token"),
    ]
    assert [(each["what"], each["target"]) for each in after_first] == [("limit", "umans")]
    refused = workspace.run("events", "--audit", "--unit", "a", code=2).stderr
    assert "--audit shows the changes of the whole fleet" in refused
