"""`summary` with real work in real worktrees: it names what cannot be merged together."""

import shutil
from zoneinfo import ZoneInfo

from tests.cli.conftest import Workspace
from tests.workspaces.finished_units import Files, new_repository, run_units

from paceline.cli.commands.units import ReportText, Section, _conflict_facts, markdown, page, report_document
from paceline.daemon.home import open_home
from paceline.views.campaign_report import read_report
from paceline.views.unit_changes import CampaignConflicts, read_conflicts

WORKS: dict[str, Files] = {"a_one": {"kept.txt": "a\n"}, "b_two": {"kept.txt": "b\n"}, "c": {"c.txt": "c\n"}}


def test_the_report_names_conflicts_before_anybody_merges(workspace: Workspace) -> None:
    repository = new_repository(workspace.folder / "project")
    with open_home() as home:
        run_units(home.store, repository, workspace.home, WORKS)

    text = workspace.run("summary", "docs").stdout
    shutil.rmtree(repository.top)
    without_repository = workspace.run("summary", "docs").stdout

    assert "- **Conflicts**: 1\n" in text
    assert "\n## Conflicts\n\n| unit | conflicts with | in |\n| --- | --- | --- |\n" in text
    assert "\n| docs/a_one | docs/b_two | kept.txt |\n" in text
    assert "- **Conflicts**: unknown: " in without_repository


def test_a_report_without_conflicts_says_so(workspace: Workspace) -> None:
    repository = new_repository(workspace.folder / "project")
    with open_home() as home:
        run_units(home.store, repository, workspace.home, {"a": {"a.txt": "a\n"}, "b": {"b.txt": "b\n"}})

    assert "- **Conflicts**: none: all finished work can be merged\n" in workspace.run("summary", "docs").stdout


def test_conflicts_with_what_is_checked_out_are_named_and_all_are_in_the_json(workspace: Workspace) -> None:
    repository = new_repository(workspace.folder / "project")
    with open_home() as home:
        run_units(home.store, repository, workspace.home, WORKS)
    repository.write("c.txt", "mine\n")
    repository.commit()

    workspace.run("summary", "docs", "--html", "night.html")

    page = (workspace.folder / "night.html").read_text("utf-8")
    assert "<tr><td>docs/c</td><td>what is checked out</td><td>c.txt</td></tr>" in page
    assert workspace.run_json("summary", "docs")["conflicts"] == {
        "conflicts": [
            {"unit": "docs/c", "other": None, "paths": ["c.txt"]},
            {"unit": "docs/a_one", "other": "docs/b_two", "paths": ["kept.txt"]},
        ],
        "pairs_tried": 4,
        "missing": [],
        "problems": [],
        "is_complete": True,
    }


def test_a_report_that_tried_some_pairs_only_does_not_call_the_rest_mergeable(workspace: Workspace) -> None:
    repository = new_repository(workspace.folder / "project")
    with open_home() as home:
        run_units(home.store, repository, workspace.home, WORKS)
        found = read_conflicts(home.store, "docs", most_pairs=0)
        report = read_report(home.store, "docs")

    text = markdown(report_document(report, ZoneInfo("UTC"), 0.0, conflicts=found))

    assert "- **Conflicts**: 0 among the first 0 pairs of branches; the others were not tried\n" in text


def test_a_report_does_not_call_work_mergeable_whose_commit_is_gone() -> None:
    found = CampaignConflicts(pairs_tried=1, missing=("docs/a", "docs/b"))

    facts = dict(_conflict_facts(found))

    assert facts == {"Conflicts": "0 among the commits that are there; the commits of 2 units are gone"}


def test_the_report_on_work_outside_git_has_no_conflicts(workspace: Workspace) -> None:
    workspace.run("run", workspace.plan("true", "a"))

    assert "Conflicts" not in workspace.run("summary", "docs").stdout
    assert workspace.run_json("summary", "docs")["conflicts"] is None


def test_a_finished_campaign_is_not_active_and_a_retry_forgets_no_attempt(workspace: Workspace) -> None:
    workspace.run("run", workspace.plan("[ {id} = good ]", "good", "bad", head="max_attempts = 1"), code=1)
    finished = workspace.run("summary", "docs").stdout
    assert "reason" not in workspace.run("show", "docs/good").stdout
    workspace.run("retry", "docs")
    again = workspace.run("summary", "docs").stdout

    assert "- **State**: finished\n" in finished
    assert ["- **Ended**" in text for text in (finished, again)] == [True, False]
    assert "- **State**: active\n" in again
    assert [text.count("- **Attempts**: 2\n") for text in (finished, again)] == [1, 1]


def test_what_is_gone_or_says_nothing_is_not_shown_as_if_it_were_there(workspace: Workspace) -> None:
    repository = new_repository(workspace.folder / "project")
    with open_home() as home:
        run_units(home.store, repository, workspace.home, {"a": {"a.txt": "a\n"}, "b": {}})
    before = workspace.run("show", "docs/a").stdout
    nothing = workspace.run("diff", "docs/b")
    shutil.rmtree(workspace.home / "workspaces", ignore_errors=True)
    after = workspace.run("show", "docs/a").stdout

    assert ("(removed)" in before, "(removed)" in after) == (False, True)
    assert (nothing.stdout, nothing.stderr) == ("", "docs/b changed nothing\n")


def test_control_characters_of_an_agent_are_in_neither_form_of_the_report() -> None:
    rows = [("docs/a", "held", "look \x1b[31mred\x07 here")]
    needs_you = Section(title="Needs you", columns=("unit", "state", "why"), rows=rows)
    facts = [("State", "paused itself: \x1b]0;title\x07 gone")]
    document = ReportText(title="docs: 0 of 1 done", lead="Written now.", facts=facts, sections=[needs_you])

    found = [{letter for letter in text if not letter.isprintable()} for text in (markdown(document), page(document))]

    assert found == [{"\n"}, {"\n"}]
