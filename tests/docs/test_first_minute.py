"""What a reader must find within a minute, and what the pages promise: where it stands, and that it is still so."""

from pathlib import Path

from paceline.settings import load_settings

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def section(page: str, title: str) -> str:
    """Return the text below a heading."""
    return (ROOT / page).read_text("utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_readme_says_what_it_needs_and_how_it_is_updated_before_any_code() -> None:
    beginning, _, _ = README.partition("\n## ")

    assert "Both commands need only Linux, Python 3.11 or newer and make." in beginning
    assert "macOS and Windows are not supported." in beginning
    assert "To update, stop the engine, run `git pull` and install again." in beginning


def test_the_readme_shows_a_plan_of_eight_lines_a_pool_for_a_max_plan_and_how_to_hear_of_the_end(
    tmp_path: Path,
) -> None:
    """Another test reads the plan as `paceline run` does."""
    night = section("README.md", "A few hundred tasks overnight")
    plan = night.partition("```toml\n")[2].partition("```")[0]
    sessions = load_settings(tmp_path, {"HOME": "/"}, {}).limits["sessions"].limit

    assert len([line for line in plan.splitlines() if line]) <= 8
    assert (sessions, "Four sessions run at once by default." in night) == (4, True)
    assert "One login of a Max plan sustains three to four sessions of opus" in night
    assert "To hear of the end: `paceline run night.toml; notify-send" in night


def test_a_page_says_what_is_promised_about_agents_that_run_as_the_same_user_and_what_is_not() -> None:
    promised, _, not_promised = section("docs/access.md", "Agents that run as you").partition("Not promised:")

    assert [text.count("\n- ") >= 4 for text in (promised.partition("Promised:")[2], not_promised)] == [True, True]
    assert "It may read the files of its user: tokens and the database in `PACELINE_HOME`" in not_promised
    assert "It may end the engine and other sessions, change the database" in not_promised
