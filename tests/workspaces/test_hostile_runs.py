"""Agents that broke their workspaces, in runs of the real engine with a home inside of the project."""

import json
from pathlib import Path

import pytest
from tests.cli.shell import Shell
from tests.cli.shell import shell as shell
from tests.workspaces.hostile_world import SECRET, SECRETS, user_git

BREAKS = {
    "git-file-deleted": "rm .git",
    "git-file-of-a-clone": "git clone -q . T; rm .git; mv T/.git .git; rm -rf T",
    "evil-folder": "rm .git; git init -q; git config filter.x.clean $CANARY; echo '* filter=x' > .gitattributes",
    "evil-filter": "git config filter.y.clean $CANARY; echo '*.y filter=y' > .gitattributes; echo y > y.y",
    "fresh-folder": "cd ..; mv fresh-folder kept; mkdir fresh-folder; cp kept/work.txt fresh-folder",
    "link": "cd ..; mv link linked; ln -s linked link",
    "entry-deleted": "rm -r $(cat .git | cut -c9-)",
}
PLAN = """
[campaign]
name = "docs"
command = ["sh", "-c", "echo work > work.txt; eval \\"$1\\"", "sh", "{{prompt}}"]
[campaign.workspace]
kind = "worktree"
{units}
"""


def plan_of(scripts: dict[str, str]) -> str:
    lines = (f"[[unit]]\nid = {json.dumps(name)}\nprompt = {json.dumps(text)}" for name, text in scripts.items())
    return PLAN.format(units="\n".join(lines))


def test_units_that_broke_their_workspaces_are_held_and_the_others_are_done(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(shell.folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(shell.folder))
    project, marker, canary = shell.folder / "project", shell.folder / "ran", shell.folder / "canary"
    canary.write_text(f"#!/bin/sh\nenv >> {marker}\nexec cat\n")
    canary.chmod(0o755)
    project.mkdir()
    user_git(project, "init", "-q")
    (project / ".gitignore").write_text(".paceline/\n")
    (project / "docs.toml").write_text(plan_of(BREAKS | {"fine": "true"}).replace("$CANARY", str(canary)))
    user_git(project, "add", "-A")
    user_git(project, "commit", "-qm", "first")
    before = user_git(project, "symbolic-ref", "HEAD"), user_git(project, "rev-parse", "HEAD")
    env = {"PACELINE_HOME": str(project / ".paceline"), "GIT_CONFIG_NOSYSTEM": "1"}

    shell.start("run", str(project / "docs.toml"), **env, **dict.fromkeys(SECRETS, SECRET)).communicate(timeout=90)

    units = {each["id"].partition("/")[2]: each for each in units_of(shell, env)}
    assert {name: unit["state"] for name, unit in units.items()} == {**dict.fromkeys(BREAKS, "held"), "fine": "done"}
    folders = {name: Path(units[name]["workspace"]) for name in BREAKS}
    assert [name for name, folder in folders.items() if str(folder) not in units[name]["reason"]] == []
    assert [name for name, folder in folders.items() if (folder / "work.txt").read_text() != "work\n"] == []
    assert user_git(project, "show", "paceline/docs/fine:work.txt") == "work"
    assert (user_git(project, "symbolic-ref", "HEAD"), user_git(project, "rev-parse", "HEAD")) == before
    assert user_git(project, "status", "--porcelain") == ""
    assert not marker.exists(), marker.read_text()


def test_a_unit_that_edits_the_record_of_its_workspace_cannot_leave_its_work_out(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(shell.folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(shell.folder))
    project = shell.folder / "project"
    project.mkdir()
    user_git(project, "init", "-q")
    (project / ".gitignore").write_text(".paceline/\n")
    records = '"$(git rev-parse --git-common-dir)"/paceline/workspaces/a-*.json'
    edit = f"""sed -i 's/"uncommitted":./&"work.txt",/' {records}"""
    plan = plan_of({"a": edit}).replace('"worktree"', '"worktree"\ninclude = ["config.local"]')
    (project / "docs.toml").write_text(plan)
    user_git(project, "add", "-A")
    user_git(project, "commit", "-qm", "first")
    (project / "config.local").write_text("the user's own\n")
    env = {"PACELINE_HOME": str(project / ".paceline"), "GIT_CONFIG_NOSYSTEM": "1"}

    shell.start("run", str(project / "docs.toml"), **env).communicate(timeout=90)

    assert [each["state"] for each in units_of(shell, env)] == ["done"]
    files = user_git(project, "ls-tree", "-r", "--name-only", "paceline/docs/a").split()
    assert files == [".gitignore", "docs.toml", "work.txt"]


def units_of(shell: Shell, env: dict[str, str]) -> list[dict[str, str]]:
    out, _ = shell.run("units", "docs", "--json", code=0, **env)
    found: list[dict[str, str]] = json.loads(out)["units"]
    return found
