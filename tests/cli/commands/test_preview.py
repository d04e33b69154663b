"""`preview`: what would start now. It starts and stores nothing."""

from pathlib import Path

from tests.cli.conftest import Workspace, park
from tests.workspaces.finished_units import new_repository


def test_a_preview_starts_and_stores_nothing(workspace: Workspace) -> None:
    plan = workspace.plan("echo {id} >> ends", *"abcdef", head="max_sessions = 2")

    preview = workspace.run_json("preview", plan)

    assert preview["starts"] == ["docs/a", "docs/b"]
    assert preview["waiting"] == 4
    assert preview["waits"][""]["detail"] == "campaign:docs at its limit (2/2)"
    assert workspace.run_json("list")["campaigns"] == []
    assert not (workspace.folder / "ends").exists()


def test_a_preview_counts_what_runs_and_what_is_done(workspace: Workspace) -> None:
    plan = workspace.plan("echo {id}", "a", "b", "c", "d")
    workspace.run("add", plan)
    park()

    preview = workspace.run_json("preview", plan)
    said = workspace.run("preview", plan).stdout

    assert (preview["parked"], preview["starts"]) == (1, ["docs/b", "docs/c", "docs/d"])
    assert "1 parked already" in said


def test_a_unit_that_waits_for_a_person_is_not_called_finished(workspace: Workspace) -> None:
    plan = workspace.plan("true", "a", "b")
    workspace.run("add", plan)
    workspace.run("pause", "docs/a")
    workspace.run("cancel", "docs/b")

    preview = workspace.run_json("preview", plan)
    said = workspace.run("preview", plan).stdout

    assert (preview["finished"], preview["stopped"]) == (1, 1)
    assert "  1 finished already\n  1 stopped, until a person retries" in said


def test_a_preview_of_a_plan_that_was_never_added_goes_flat_out_towards_its_deadline(workspace: Workspace) -> None:
    preview = workspace.run_json("preview", workspace.plan("true", *"abc", head="deadline = 2099-01-01T00:00:00Z"))
    assert (preview["units"], len(preview["starts"])) == (3, 3)


def test_a_preview_keeps_to_the_pace_of_a_deadline(workspace: Workspace) -> None:
    workspace.run("run", workspace.plan("true", "a", "b"))

    preview = workspace.run_json("preview", workspace.plan("true", *"abcdef", head="deadline = 2099-01-01T00:00:00Z"))

    assert preview["starts"] == ["docs/c"]
    waits = preview["waits"][""]
    assert (waits["reason"], waits["scope"]) == ("pacing", "campaign:docs")
    assert waits["detail"].endswith("and 1 session at a time makes it")


def test_a_preview_without_any_limit_starts_everything(workspace: Workspace) -> None:
    workspace.write("paceline.toml", '[pool]\nsessions = "none"')

    assert len(workspace.run_json("preview", workspace.plan("true", *(f"u{n}" for n in range(40))))["starts"]) == 40


def test_a_preview_of_a_paused_campaign_starts_nothing(workspace: Workspace) -> None:
    plan = workspace.plan("true", "a")
    workspace.run("add", plan)
    workspace.run("pause", "docs")

    assert workspace.run_json("preview", plan)["starts"] == []


def test_preview_and_run_name_changes_that_workspaces_do_not_contain(workspace: Workspace) -> None:
    repository = new_repository(workspace.folder / "project")
    plan = workspace.plan("true", "a", head='[campaign.workspace]\nkind = "worktree"\n')
    plan.write_text(plan.read_text() + '\ncwd = "project"\n')
    repository.write("kept.txt", "mine\n")

    shown = workspace.run("preview", plan).stdout
    warned = workspace.run("run", plan).stderr

    dirty = f"{repository.top} has uncommitted changes in 1 file, which the workspaces do not contain"
    assert "docs: 1 unit; nothing is started or stored by this" in shown
    assert dirty in shown
    assert warned.startswith(f"Warning: {dirty}; commit them first")


LOGINS = """
[limits]
"anthropic/*" = 1
[accounts.one]
provider = "anthropic"
kind = "subscription"
env = { CLAUDE_CONFIG_DIR = "%s/one" }
[accounts.two]
provider = "anthropic"
kind = "subscription"
env = { CLAUDE_CONFIG_DIR = "%s/two" }
"""


def test_a_preview_counts_units_once_and_looks_for_every_login(workspace: Workspace, bare_path: Path) -> None:
    (bare_path / "claude").symlink_to("/bin/true")
    workspace.write("one/.credentials.json", "{}")
    (workspace.folder / "two").mkdir()
    workspace.write("paceline.toml", LOGINS % (workspace.folder, workspace.folder))
    units = "".join(f'[[unit]]\nid = "{name}"\nprompt = "x"\n' for name in "abcde")
    head = '[campaign]\nname = "night"\nagent = "claude"\npermissions = "edit"\n'

    named = workspace.run("preview", workspace.write("plan.toml", f'{head}accounts = ["one", "two"]\n{units}')).stdout
    default = workspace.run("preview", workspace.write("plan.toml", head + units)).stdout

    assert named.count("4 would wait") == 1
    assert "    and on two: no login" in named
    assert "  none would start now: no login\n  5 would wait on anthropic/default: no login\n" in default
    missing = "is not logged in: there is no .credentials.json in"
    assert [line.strip() for line in named.splitlines() if missing in line] == [
        f"warning: account 'two' {missing} {workspace.folder}/two; log in once: mkdir -p {workspace.folder}/two && "
        f"CLAUDE_CONFIG_DIR={workspace.folder}/two claude"
    ]
    assert f"account 'anthropic/default' {missing} {workspace.folder}/.claude; log in once: claude" in default
    assert "agents that were started outside Paceline are not counted" in named
