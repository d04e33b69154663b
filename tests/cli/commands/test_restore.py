"""`restore`: a held account is usable again."""

from tests.cli.conftest import Workspace, finish, read_until


def test_a_held_account_is_reported_and_restored(workspace: Workspace) -> None:
    workspace.write("paceline.toml", '[accounts.mine]\nprovider = "acme"\nkind = "subscription"')
    script = "echo 'Invalid API key · Please run /login' >&2; exit 1"
    plan = workspace.plan(f"test -e mended || {{ {script}; }}", "a", head='accounts = ["mine"]')
    engine = workspace.start("run", plan)
    read_until(engine, "held acme/mine")

    held = next(row for row in workspace.run_json("limits")["limits"] if row["scope"] == "acme/mine")
    (workspace.folder / "mended").touch()
    workspace.run("restore", "acme/mine")
    code, out, _ = finish(engine)

    assert held["held"]
    assert "paceline restore acme/mine" in held["state"]
    assert (code, "docs: 1 done" in out) == (0, True)
