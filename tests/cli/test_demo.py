"""The demo: a small performance over real HTTP, and its two faces."""

import json
from io import StringIO

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from paceline.cli.app import app
from paceline.cli.demo import command
from paceline.cli.demo.command import perform, state_line
from paceline.cli.demo.ledger import Agent, Ledger, Team, sentence_of
from paceline.cli.demo.play import Plan, staged
from paceline.cli.demo.summary import shares
from paceline.cli.demo.view import countdown, screen
from paceline.core.signals import QuotaClosed
from paceline.events import FIELDS, Event

SMALL = Plan(
    agents_per_team=3,
    calls_per_agent=2,
    configured=3,
    capacity=2,
    lag=0.02,
    latency=0.01,
    words_per_second=500.0,
    window_requests=7,
    window_seconds=6.0,
    hiccup_after=8,
    hiccup_seconds=1.0,
)


def plain_console() -> Console:
    return Console(file=StringIO(), width=80)


def written(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


async def test_every_call_is_served_through_overload_and_a_closed_window() -> None:
    console = plain_console()

    found = await perform(console, SMALL)

    assert found.done == found.calls == 12
    assert found.lost == 0
    assert found.peak_in_flight <= SMALL.capacity
    assert found.refusals["too many at once"] >= 1
    assert found.refusals["overloaded"] == 1
    assert found.refusals["window spent"] >= 1
    assert found.reopenings == 1
    lines = written(console)
    assert "\x1b" not in lines
    for words in ("the limit was 3", "overloaded", "window is spent", "one canary goes first", "12 of 12, none lost"):
        assert words in lines


async def test_the_screen_fits_an_ordinary_terminal() -> None:
    console = Console(file=StringIO(), width=80, force_terminal=True, color_system=None)
    async with staged(SMALL) as play:
        before = play.ledger.started_at

        console.print(screen(play, before + 1.0, console.width))

        assert state_line(play, before + 1.0).startswith("  1.0 s  0/12 done, 0/3 in flight, 0 waiting")
    lines = written(console).splitlines()
    assert len(lines) <= 23
    assert max(map(len, lines)) <= 80
    assert "nobody waits" in written(console)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_command_ends_with_0_and_its_figures(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setattr(command, "PLAN", msgspec.structs.replace(SMALL, window_requests=1000, hiccup_after=1000))

    result = runner.invoke(app, ["demo", *options])

    assert result.exit_code == 0
    if options:
        assert json.loads(result.stdout)["done"] == 12
    else:
        assert "calls done       12 of 12, none lost" in result.stdout


def test_refusals_that_come_together_are_one_line() -> None:
    ledger = Ledger([], started_at=100.0)

    for at, before, after in ((100.0, 12, 11), (100.1, 11, 10), (100.2, 10, 9), (103.0, 9, 8)):
        ledger.hear(Event("scope.platform_limit", at, "a", fields={"previous_cap": before, "effective_cap": after}))

    assert [line.text for line in ledger.lines] == [
        "429: too many at once; the limit was 12, it is 9 from now on",
        "429: too many at once; the limit was 9, it is 8 from now on",
    ]
    assert [line.number for line in ledger.untold(3)] == [4]


def test_only_places_that_both_teams_wanted_count_as_shares() -> None:
    high, low = Team("high", 1, [Agent(1, 1), Agent(2, 1)]), Team("low", 0, [Agent(1, 1)])
    ledger = Ledger([high, low], started_at=0.0)

    for agent in (*high.agents, *low.agents):
        ledger.asked(agent)
    ledger.started(high, high.agents[0], 0.0)
    ledger.started(low, low.agents[0], 0.0)
    ledger.started(high, high.agents[1], 0.0)

    assert (high.contested, low.contested) == (1, 1)
    assert [share.due for share in shares([high, low])] == [2 / 3, 1 / 3]


def test_a_refused_call_is_not_lost() -> None:
    agent = Agent(1, 1)
    ledger = Ledger([Team("only", 0, [agent])], started_at=0.0)

    ledger.refused(agent, [QuotaClosed()])
    assert not ledger.is_finished
    ledger.served(agent)

    assert ledger.is_finished
    assert ledger.refusals == {"window spent": 1}


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_every_event_of_the_limiter_can_be_heard(name: str) -> None:
    numbers: dict[str, object] = dict.fromkeys(FIELDS[name], 1.0)

    sentence = sentence_of(Event(name, 0.0, "a", fields=numbers))

    assert sentence is None or sentence[1]


def test_a_countdown_says_nothing_where_time_alone_does_not_help() -> None:
    assert countdown(None, 0.0) == ""
    assert countdown(12.5, 10.0) == "2.5 s"
