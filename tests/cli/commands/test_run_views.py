"""What `run` shows while its store cannot be read: the warnings, all of them, beside the last state."""

import logging

import pytest
from tests.cli.conftest import Workspace

from paceline.cli.commands.run import LiveView, PlainView
from paceline.daemon.home import open_home
from paceline.daemon.process import LastWarnings

MESSAGES = ("the store cannot be used", "the store announces no changes")


def warn(warnings: LastWarnings) -> None:
    for message in MESSAGES:
        warnings.handle(logging.LogRecord("paceline.engine", logging.WARNING, __file__, 1, message, None, None))


def test_lines_have_every_warning_since_the_last_ones(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    with open_home() as home:
        warnings = LastWarnings(home.zone)
        view = PlainView(home, 0, warnings)
        warn(warnings)
        view.refresh()

    assert tuple(line.partition(" ")[2] for line in capsys.readouterr().out.splitlines()) == MESSAGES


def test_the_screen_has_the_warnings_below_the_last_state(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    workspace.run("add", workspace.plan("true", "a"))
    with open_home() as home:
        warnings = LastWarnings(home.zone)
        view = LiveView(home, ["docs"], home.last_event_id(), warnings)
        view.refresh()
        home.store.close()
        warn(warnings)
        view.refresh()
        view.stop()

    shown = capsys.readouterr().out
    assert [words in shown for words in ("docs", *MESSAGES)] == [True, True, True]
