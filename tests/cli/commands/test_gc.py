"""`gc` and `delete`: outputs and prompts go when they should, and never those that a person still needs."""

import os
import shutil
import time
from pathlib import Path

from tests.cli.conftest import Workspace

OLD = 20 * 86400.0


def outputs(workspace: Workspace) -> list[Path]:
    return sorted((workspace.home / "spool" / ".settled").iterdir())


def let_all_age(workspace: Workspace) -> None:
    for folder in outputs(workspace):
        os.utime(folder, (time.time() - OLD, time.time() - OLD))


def test_gc_removes_old_output_but_not_that_of_units_that_a_person_must_see(workspace: Workspace) -> None:
    plan = workspace.plan("test $PACELINE_UNIT = docs/good", "good", "bad", head="max_attempts = 1")
    workspace.run("run", plan, code=1)
    let_all_age(workspace)

    shown = workspace.run_json("gc", "--dry-run")
    assert len(outputs(workspace)) == 2
    said = workspace.run("gc").stdout

    assert (shown["dry_run"], shown["outputs"]["attempts"]) == (True, 1)
    assert "removed the output of 1 attempt (" in said
    assert "and 0 events" in said
    assert workspace.run_json("gc")["outputs"] == {"attempts": 0, "bytes": 0}
    workspace.run("logs", "docs/bad")
    assert "the output has been removed" in workspace.run("logs", "docs/good", code=2).stderr


def test_gc_knows_the_units_of_attempts_that_an_earlier_version_made(workspace: Workspace) -> None:
    plan = workspace.plan("test $PACELINE_UNIT = docs/good", "good", "bad", head="max_attempts = 1")
    workspace.run("run", plan, code=1)
    for folder in outputs(workspace):
        (folder / "status.json").write_text((folder / "status.json").read_text().replace('"unit"', '"other"'))
    let_all_age(workspace)

    assert workspace.run_json("gc")["outputs"]["attempts"] == 1

    workspace.run("logs", "docs/bad")


def test_delete_removes_the_prompts_and_outputs_of_all_attempts_of_the_campaign_only(workspace: Workspace) -> None:
    workspace.run("run", workspace.plan("cat", "x", "y", name="gone"))
    workspace.run("run", workspace.plan("cat", "x", name="gone2"))
    gone = next(folder for folder in outputs(workspace) if "gone/x" in (folder / "status.json").read_text())
    shutil.copytree(gone, gone.with_name("an-earlier-attempt"))

    answer = workspace.run_json("delete", "gone", "--yes")

    assert answer["outputs"] == 3
    left = "".join(path.read_text(errors="replace") for folder in outputs(workspace) for path in folder.iterdir())
    assert "do y" not in left
    assert "do x" in left


def test_the_engine_removes_old_output_while_it_runs(workspace: Workspace) -> None:
    workspace.write("paceline.toml", '[retention]\noutputs = "1d"')
    workspace.run("run", workspace.plan("true", "a", "b", "c"))
    let_all_age(workspace)

    workspace.run("run", workspace.plan("true", "a", name="next"))

    assert len(outputs(workspace)) == 1
