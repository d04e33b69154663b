"""The keys of a plan about workspaces, checks and delivery: what they become, and every mistake with its place."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.workspaces.conftest import git, write
from tests.workspaces.conftest import top as top

from paceline.errors import InvalidPlan
from paceline.settings import Settings, load_settings
from paceline.settings.plan_file import Plan, campaign_with_changes, read_plan
from paceline.store.interface import WorkspaceSettings
from paceline.workspaces import read_settings

NOW = 1_800_000_000.0
HEAD = '[campaign]\nname = "c"\nagent = "command"\ncommand = ["x"]\n'
ONE = '[[unit]]\nid = "a"\n'
TABLE = "[campaign.workspace]\n"
WORKTREE = TABLE + 'kind = "worktree"\n'
COMMAND = 'must be a command as a list of texts, such as ["make", "test"]'
NEEDS_WORKSPACES = 'needs workspaces: add [campaign.workspace] with kind = "worktree"'
NO_KIND = 'plan.toml:5: the workspace needs a kind: kind = "worktree", "copy" or "none"'
NO_BRANCH = "cannot name the branches of units"

Read = Callable[[str], Plan]


@pytest.fixture
def configured(tmp_path: Path) -> Settings:
    return load_settings(tmp_path, {"HOME": str(tmp_path)}, {})


@pytest.fixture
def read(top: Path, configured: Settings) -> Read:
    def from_text(text: str) -> Plan:
        write(top / "plan.toml", text)
        return read_plan(top / "plan.toml", configured, now=NOW)

    return from_text


MISTAKES = {
    'check = "make"\n': [f'plan.toml:5: campaign.check = "make": {COMMAND}'],
    "check = []\n": [f"plan.toml:5: campaign.check = []: {COMMAND}"],
    'chek = ["make"]\n': ['plan.toml:5: unknown key campaign.chek; did you mean "check"?'],
    "check_rounds = -1\n": [
        "plan.toml:5: campaign.check_rounds = -1: must be a whole number from 0 to 20, without quotes"
    ],
    'check_timeout = "soon"\n': [
        'plan.toml:5: campaign.check_timeout = "soon": must be a duration longer than 0, ten years at most:'
        ' "350ms", "1s", "30m", "5h", or a number of seconds'
    ],
    'check_prompt = "Fix it."\n': [
        'plan.toml:5: campaign.check_prompt = "Fix it.": must contain {output}, which the output of the check replaces'
    ],
    "commit = true\n": [f"plan.toml:5: campaign.commit = true: {NEEDS_WORKSPACES}"],
    'deliver = "patch"\n': [f'plan.toml:5: campaign.deliver = "patch": {NEEDS_WORKSPACES}'],
    'deliver = "brunch"\n' + WORKTREE: [
        'plan.toml:5: campaign.deliver = "brunch": must be "branch", "patch", or a command as a list,'
        ' such as ["gh", "pr", "create"]'
    ],
    TABLE: [NO_KIND],
    TABLE + 'kind = "worktre"\n': [
        'plan.toml:6: campaign.workspace.kind = "worktre": must be one of worktree, copy, none;'
        ' did you mean "worktree"?'
    ],
    TABLE + 'kid = "worktree"\n': [
        'plan.toml:6: unknown key campaign.workspace.kid; did you mean "kind"?',
        NO_KIND,
    ],
    TABLE + 'kind = "copy"\nbranch = "{id}"\n': [
        'plan.toml:7: branch is for kind = "worktree"; a copy has no branch; remove it'
    ],
    WORKTREE + 'branch = "x"\n': [
        f'plan.toml:7: campaign.workspace.branch = "x": {NO_BRANCH}: it must contain {{id}}:'
        " each unit needs a branch of its own"
    ],
    WORKTREE + 'branch = "a..{id}"\n': [
        f'plan.toml:7: campaign.workspace.branch = "a..{{id}}": {NO_BRANCH}:'
        " git refuses '..' at this place in the name of a branch"
    ],
    WORKTREE + 'include = ["/etc"]\n': [
        "plan.toml:7: campaign.workspace.include = ['/etc']: '/etc' cannot be included: it must be relative to the top"
        " of the repository, and stay inside of it"
    ],
    WORKTREE + 'setup = "npm ci"\n': [f'plan.toml:7: campaign.workspace.setup = "npm ci": {COMMAND}'],
    WORKTREE + 'keep = "some"\n': ['plan.toml:7: campaign.workspace.keep = "some": must be one of failed, all, none'],
    WORKTREE + 'root = "spaces"\n': [
        'plan.toml:7: campaign.workspace.root = "spaces": must be an absolute path, or begin with ~'
    ],
    WORKTREE + "base = 3\n": ["plan.toml:7: campaign.workspace.base = 3: must be text in quotes that is not empty"],
}


@pytest.mark.parametrize("keys", MISTAKES)
def test_every_mistake_is_named_with_its_place_and_what_to_do(read: Read, top: Path, keys: str) -> None:
    with pytest.raises(InvalidPlan) as caught:
        read(HEAD + keys + ONE)

    assert [mistake.replace(f"{top}/", "") for mistake in caught.value.mistakes] == MISTAKES[keys]


def test_a_folder_outside_git_cannot_have_worktrees(tmp_path: Path, configured: Settings) -> None:
    write(tmp_path / "plan.toml", HEAD + WORKTREE + ONE)

    with pytest.raises(InvalidPlan) as caught:
        read_plan(tmp_path / "plan.toml", configured, now=NOW)

    (mistake,) = caught.value.mistakes
    assert mistake.endswith(
        f"plan.toml:5: no worktree can be made for {tmp_path}: {tmp_path} is in no git repository;"
        ' run `git init` and commit there, or set kind = "copy" in [campaign.workspace]'
    )


def test_the_base_is_the_commit_of_the_time_when_the_plan_is_read(read: Read, top: Path) -> None:
    first = git(top, "rev-parse", "HEAD")
    plan = read(HEAD + WORKTREE + 'include = [".env"]\nsetup = ["npm", "ci"]\nkeep = "all"\nroot = "~/w"\n' + ONE)
    write(top / "a.txt", "two\n")
    git(top, "commit", "-qam", "second")

    settings = plan.campaign.workspace
    assert settings is not None
    assert settings == WorkspaceSettings(
        include=(".env",),
        setup=("npm", "ci"),
        keep="all",
        root=settings.root,
        bases={str(top): first},
        git={str(top): read_settings(str(top))},
    )
    assert settings.root == str(top.parent / "w")


def test_kind_none_is_as_no_table_at_all(read: Read) -> None:
    assert read(HEAD + TABLE + 'kind = "none"\n' + ONE).campaign == read(HEAD + ONE).campaign


def test_a_change_of_a_campaign_keeps_its_workspace_and_its_check(read: Read, configured: Settings) -> None:
    keys = 'check = ["make", "test"]\ncheck_rounds = 3\ncheck_timeout = "90s"\ndeliver = "patch"\n'
    campaign = read(HEAD + keys + WORKTREE + ONE).campaign

    changed = campaign_with_changes(campaign, {"check_rounds": 1}, configured, now=0.0)

    kept = ("workspace", "check", "check_timeout", "deliver", "commit", "command")
    assert {name: getattr(changed, name) for name in kept} == {name: getattr(campaign, name) for name in kept}
    assert (campaign.check_rounds, changed.check_rounds, campaign.check_timeout) == (3, 1, 90.0)
    assert campaign_with_changes(changed, {"check_rounds": 3}, configured, now=0.0) == campaign
    assert campaign_with_changes(campaign, {"check": None}, configured, now=0.0).check == ()
