"""`restore`: a held account is usable again."""

from tests.cli.conftest import Workspace


def test_a_run_that_is_left_with_held_work_ends_and_names_the_command_that_lifts_the_hold(
    workspace: Workspace,
) -> None:
    workspace.write("paceline.toml", '[accounts.mine]\nprovider = "acme"\nkind = "subscription"')
    script = "echo 'Your credit balance is too low to access the API' >&2; exit 1"
    plan = workspace.plan(f"test -e paid || {{ {script}; }}", "a", head='accounts = ["mine"]')

    ended = workspace.run("run", plan, code=1)
    held = next(row for row in workspace.run_json("limits")["limits"] if row["scope"] == "acme/mine")
    (workspace.folder / "paid").touch()
    workspace.run("restore", "acme/mine")
    again = workspace.run("run", plan)

    assert "paceline restore acme/mine" in ended.stdout
    assert held["held"]
    assert "paceline restore acme/mine" in held["state"]
    assert "docs: 1 done" in again.stdout


def test_a_run_that_is_left_with_a_missing_login_needs_no_restore(workspace: Workspace) -> None:
    workspace.write("paceline.toml", '[accounts.mine]\nprovider = "anthropic"\nkind = "subscription"')
    script = "echo 'Not logged in · Please run /login' >&2; exit 1"
    plan = workspace.plan(f"test -e known || {{ {script}; }}", "a", head='accounts = ["mine"]')

    ended = workspace.run("run", plan, code=1).stdout
    (workspace.folder / "known").touch()
    again = workspace.run("run", plan).stdout

    assert "mine is held: " in ended
    assert "When that is fixed, run again: the login is asked again by itself." in ended
    assert "paceline restore" not in ended
    assert "docs: 1 done" in again
