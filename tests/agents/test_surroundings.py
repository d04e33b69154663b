"""Files that a person wrote for another program: whatever they are, they are explained and never crash a launch."""

import os
from pathlib import Path

import pytest
from tests.agents.fake_machine import FakeMachine

from paceline.agents.surroundings import parse_dotenv, parse_json, read_file

SETTINGS = "home/.claude/settings.json"


def test_a_broken_file_holds_and_is_explained_without_its_content(machine: FakeMachine) -> None:
    machine.write(SETTINGS, '{"env": {"ANTHROPIC_API_KEY": "sk-secret"')

    (finding,) = machine.find("claude")

    assert finding.holds
    assert "settings.json is not valid JSON" in finding.text
    assert "sk-secret" not in finding.text


def test_comments_and_trailing_commas_hide_no_key(machine: FakeMachine) -> None:
    machine.write(SETTINGS, '{\n // mine\n "apiKeyHelper": "echo //x", /* , */\n}')

    assert machine.keys("claude") == {SETTINGS: ["apiKeyHelper"]}


def test_a_link_is_followed_as_the_cli_does(machine: FakeMachine) -> None:
    target = machine.write("elsewhere.json", {"apiKeyHelper": "x"})
    link = machine.root / SETTINGS
    link.parent.mkdir()
    link.symlink_to(target)

    assert machine.keys("claude") == {SETTINGS: ["apiKeyHelper"]}


def test_links_to_nothing_and_folders_are_no_files(machine: FakeMachine) -> None:
    folder = machine.root / "home" / ".claude"
    folder.mkdir()
    (folder / "settings.json").symlink_to(machine.root / "nowhere")
    (machine.project / ".claude" / "settings.json").mkdir(parents=True)

    assert machine.find("claude") == []


def test_a_link_to_itself_is_told_and_holds_nothing(machine: FakeMachine) -> None:
    link = machine.root / SETTINGS
    link.parent.mkdir()
    link.symlink_to(link)

    (finding,) = machine.find("claude")

    assert (finding.holds, "cannot be read" in finding.text) == (False, True)


def test_a_pipe_is_not_read_and_holds(machine: FakeMachine) -> None:
    (machine.root / SETTINGS).parent.mkdir()
    os.mkfifo(machine.root / SETTINGS)

    (finding,) = machine.find("claude")

    assert (finding.holds, "is not a regular file" in finding.text) == (True, True)


@pytest.mark.parametrize("text", ["", "null", "[]", '"x"', '{"env": []}', '{"env": null}', '{"env": {"A": null}}'])
def test_settings_of_any_shape_are_read(machine: FakeMachine, text: str) -> None:
    machine.write(SETTINGS, text)

    assert machine.find("claude") == []


def test_a_file_that_begins_with_a_mark_or_holds_odd_bytes_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b'\xef\xbb\xbf{"a": "\xff"}')

    assert parse_json(read_file(tmp_path / "a") or "") == {"a": "�"}


def test_an_env_file_is_read_as_dotenv_does() -> None:
    text = "# c\nexport A=1\n B = 'two words' # x\nC=\"3\"\nD=\n=x\nnot a line\nE: 5\nF=a#b"

    assert parse_dotenv(text) == {"A": "1", "B": "two words", "C": "3", "D": "", "E": "5", "F": "a"}
