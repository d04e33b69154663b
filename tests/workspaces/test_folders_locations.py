from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.workspaces.conftest import TestRepository, git

from paceline.errors import WorkspaceError
from paceline.store.interface import WorkspaceSettings
from paceline.store.unit_result import UnitResult
from paceline.workspaces import WorkspaceLocation, branch_mistake, location_of, mapped_path
from paceline.workspaces.folders import LONGEST_SLUG, slug_of

HOME = Path("/home/ann/state")
SETTINGS = WorkspaceSettings(bases={"/repo": "c0ffee", "/repo/vendor/inner": "decade"})
AWKWARD = [
    "a b",
    "a~b",
    "a..b",
    "a:b",
    "a?b",
    "a[b",
    "a@{b",
    "a.lock",
    "a.LOCK",
    "-a",
    "a/b",
    ".a",
    "a.",
    "@",
    "A",
    "日本語",
    "x" * 200,
    "a-12345678",
    "a\\b",
    "a^b",
    "a*b",
]


def test_a_plain_id_is_used_as_it_is() -> None:
    assert location_of(SETTINGS, "docs", "a", "/repo/services/a", HOME, UnitResult()) == WorkspaceLocation(
        path="/home/ann/state/workspaces/docs/a",
        cwd="/home/ann/state/workspaces/docs/a/services/a",
        branch="paceline/docs/a",
        base="c0ffee",
        repository="/repo",
    )


def test_the_innermost_repository_counts() -> None:
    place = location_of(SETTINGS, "docs", "a", "/repo/vendor/inner/x", HOME, UnitResult())
    assert (place.repository, place.base, place.cwd) == ("/repo/vendor/inner", "decade", f"{place.path}/x")


def test_what_is_stored_wins_over_the_settings() -> None:
    stored = UnitResult(workspace="/old/place", branch="old/branch", base="beef", repository="/repo", commit="f00d")
    settings = WorkspaceSettings(root="/elsewhere", branch="new/{id}", bases={"/repo": "c0ffee"})
    assert location_of(settings, "docs", "a", "/repo/sub", HOME, stored) == WorkspaceLocation(
        path="/old/place", cwd="/old/place/sub", branch="old/branch", base="beef", repository="/repo"
    )


def test_a_copy_is_of_the_units_own_folder_and_has_no_branch() -> None:
    settings = WorkspaceSettings(kind="copy", root="/big/disk")
    assert location_of(settings, "docs", "a", "/data/a", HOME, UnitResult()) == WorkspaceLocation(
        path="/big/disk/docs/a", cwd="/big/disk/docs/a", branch=None, base=None, repository="/data/a"
    )


def test_a_folder_without_a_known_base_is_the_campaigns_problem() -> None:
    with pytest.raises(WorkspaceError, match="no base commit is known for the repository of /other") as raised:
        location_of(SETTINGS, "docs", "a", "/other", HOME, UnitResult())
    assert raised.value.is_campaigns


def test_paths_of_the_repository_are_mapped_and_others_stay() -> None:
    place = location_of(SETTINGS, "docs", "a", "/repo", HOME, UnitResult())
    paths = ["/repo/out/a.md", "/repository/x", "/tmp/x"]
    assert [mapped_path(place, path) for path in paths] == [f"{place.path}/out/a.md", "/repository/x", "/tmp/x"]


@pytest.mark.parametrize("name", AWKWARD)
def test_an_altered_id_has_eight_hex_digits(name: str) -> None:
    assert slug_of(name)[-9] == "-"
    assert int(slug_of(name)[-8:], 16) >= 0


def test_no_two_awkward_ids_share_a_slug_even_where_case_does_not_count() -> None:
    names = [*AWKWARD, "a", "a-b", "a.b", "b", *(slug_of(name) for name in AWKWARD)]
    slugs = {slug_of(name).lower() for name in names}
    assert len(slugs) == len(set(names))


@given(st.text(min_size=1, max_size=250))
def test_every_slug_can_be_part_of_a_branch_and_of_a_path(name: str) -> None:
    slug = slug_of(name)
    assert len(slug) <= LONGEST_SLUG + 9
    assert branch_mistake("{id}/" + slug) is None
    assert "/" not in slug


@given(st.lists(st.text(alphabet="aA-. /0f", min_size=1, max_size=12), min_size=2, unique=True))
def test_different_ids_have_different_slugs(names: list[str]) -> None:
    assert len({slug_of(name).lower() for name in names}) == len(names)


@pytest.mark.parametrize("name", AWKWARD)
def test_git_accepts_the_branch_of_every_awkward_id(repository: TestRepository, name: str) -> None:
    place = repository.place(name)
    assert place.branch is not None
    git(repository.top, "check-ref-format", "--branch", place.branch)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("paceline/all", "must contain {id}"),
        ("{id}/{model}", "only {campaign} and {id}"),
        ("a..b/{id}", "refuses '..'"),
        ("-x/{id}", "refuses '-'"),
        ("a b/{id}", "refuses ' '"),
        ("{id}.lock", "refuses '.lock'"),
        ("{id}/", "refuses '/'"),
    ],
)
def test_a_template_that_git_refuses_is_explained(template: str, words: str) -> None:
    assert words in (branch_mistake(template) or "")


def test_the_default_template_is_fine() -> None:
    assert branch_mistake(WorkspaceSettings().branch) is None
