"""`paceline report`: a file for an issue, without secrets, and never over another one."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from paceline.cli.main import app

KEY = "sk-ant-api03-Zx8Qw7Er6Ty5Ui4Op3As2Df1Gh0Jk9Lz"
MESSAGE = f"Quota of ada@example.com is gone, key {KEY}, see /home/ada/notes"


def test_a_report_holds_the_message_without_its_secrets(runner: CliRunner, tmp_path: Path) -> None:
    path = tmp_path / "sample.json"

    result = runner.invoke(
        app,
        ["report", "-", "-o", str(path), "--provider", "newcli", "--status", "429", "-H", f"authorization: {KEY}"],
        input=MESSAGE,
    )

    assert result.exit_code == 0
    written = path.read_text()
    for secret in (KEY, "ada@example.com", "/home/ada"):
        assert secret not in written
        assert secret not in result.stdout
    report = json.loads(written)
    assert report["text"] == "Quota of <email> is gone, key <key>, see <home>"
    assert report["headers"] == {"authorization": "<secret>"}
    assert report["provider"] == "newcli"
    assert report["status"] == 429
    assert report["redacted"] == {"secret": 1, "key": 1, "e-mail address": 1, "home folder": 1}
    assert "signals" in report["understood"]


def test_it_says_where_the_file_is_and_what_was_taken_out(runner: CliRunner, tmp_path: Path) -> None:
    path = tmp_path / "sample.json"

    said = runner.invoke(app, ["report", "-", "--output", str(path)], input=MESSAGE).stdout

    assert f"written to {path}" in said.replace("\n", "")
    assert "redacted: 1 x e-mail address" in said
    assert "Read it before you attach it" in said


def test_an_existing_file_is_never_written_over_silently(runner: CliRunner, tmp_path: Path) -> None:
    path = tmp_path / "sample.json"
    path.write_text("mine")

    refused = runner.invoke(app, ["report", "-", "--output", str(path)], input=MESSAGE)

    assert refused.exit_code == 2
    assert "exists" in refused.output
    assert path.read_text() == "mine"

    forced = runner.invoke(app, ["report", "-", "--output", str(path), "--force"], input=MESSAGE)

    assert forced.exit_code == 0
    assert json.loads(path.read_text())["text"]


def test_without_a_name_it_lands_in_the_working_folder(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    result = runner.invoke(app, ["report", "-", "--json"], input=MESSAGE)

    answer = json.loads(result.stdout)
    assert [path.name for path in tmp_path.iterdir()] == [answer["path"]]
    assert answer["redacted"]["key"] == 1


def test_a_key_of_this_environment_is_known_whatever_it_looks_like(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_TOKEN", "correct horse battery")
    path = tmp_path / "sample.json"

    runner.invoke(app, ["report", "-", "-o", str(path)], input="I said correct horse battery aloud")

    assert json.loads(path.read_text())["text"] == "I said <known> aloud"


def test_a_folder_that_is_not_there_is_named(runner: CliRunner, tmp_path: Path) -> None:
    result = runner.invoke(app, ["report", "-", "-o", str(tmp_path / "no" / "x.json")], input=MESSAGE)

    assert result.exit_code == 2
    assert "cannot write" in result.output
