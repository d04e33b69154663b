"""`token`: the tokens of this home and of its fleet."""

from tests.cli.conftest import Workspace

from paceline.engine.command_log import person


def test_a_token_is_rotated_and_the_list_shows_names_and_never_values(workspace: Workspace) -> None:
    first = workspace.run("token").stdout.strip()
    second = workspace.run("token", "--rotate").stdout.strip()
    reading = workspace.run_json("token", "--read-only")
    listed = workspace.run("token", "--list").stdout
    entries = workspace.run_json("token", "--list")["tokens"]

    assert first != second == (workspace.home / "token").read_text().strip()
    assert workspace.run("token").stdout.strip() == second
    assert reading == {
        "token": (workspace.home / "token-readonly").read_text().strip(),
        "rights": "read",
        "url": f"http://127.0.0.1:7433/?token={reading['token']}",
    }
    assert [(each["name"], each["rights"], each["is_own"]) for each in entries] == [
        (person(), "full", True),
        (f"{person()}-readonly", "read", True),
    ]
    assert not any(secret in listed for secret in (first, second, reading["token"]))


def test_a_revoked_token_of_this_home_is_said_to_need_a_new_one(workspace: Workspace) -> None:
    workspace.run("token")

    printed = workspace.run("token", "--revoke", person()).stdout
    refused = workspace.run("token", code=2).stderr

    assert printed.startswith(f"revoked {person()}: engines that run refuse it within two seconds\n")
    assert "`paceline token --rotate` makes a new one" in printed
    assert "was revoked; `paceline token --rotate` makes a new one" in refused
    assert workspace.run_json("token", "--list") == {"tokens": []}
    workspace.run("token", "--rotate")
    assert workspace.run_json("token", "--revoke", person()) == {"ok": True, "name": person(), "rights": "full"}


def test_a_home_without_tokens_says_how_they_are_made(workspace: Workspace) -> None:
    assert "`paceline up` and `paceline token` make those of this home" in workspace.run("token", "--list").stdout


def test_options_that_exclude_each_other_change_nothing(workspace: Workspace) -> None:
    token = workspace.run("token").stdout

    refused = workspace.run("token", "--revoke", person(), "--rotate", code=2).stderr

    assert "--list and --revoke stand alone" in refused
    assert workspace.run("token").stdout == token
