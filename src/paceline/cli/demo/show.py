"""Runs the demo and shows it: live on a terminal, as plain lines anywhere else."""

import asyncio
import signal
import sys
import time

import msgspec
from rich.console import Console
from rich.live import Live

from paceline.cli.demo.scenario import Plan, Stage, staged
from paceline.cli.demo.summary import Figures, figures, rows, summary_table
from paceline.cli.demo.view import screen, state_line

FRAMES_PER_SECOND = 8
SECONDS_PER_PLAIN_LINE = 2.0
INTERRUPTED_EXIT_CODE = 130
PLAN = Plan()


def show_demo(*, as_json: bool) -> int:
    """The whole performance; the exit code says whether every unit was done."""
    console = Console(quiet=as_json)
    try:
        found = asyncio.run(_perform_until_told(console, PLAN))
    except TimeoutError:
        print("paceline: the demo did not end in time; please report this", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        return INTERRUPTED_EXIT_CODE
    if as_json:
        print(msgspec.json.encode(found).decode())
    return 1 if found.lost else 0


async def _perform_until_told(console: Console, plan: Plan) -> Figures:
    """A closed terminal or a TERM ends it as Ctrl-C does: no session of it may be left running."""
    performing = asyncio.ensure_future(perform(console, plan))
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, performing.cancel)
    return await performing


async def perform(console: Console, plan: Plan) -> Figures:
    """Play it, show it, sum it up. Raises TimeoutError if it hangs, which would be a fault of ours."""
    async with staged(plan) as stage:
        showing = asyncio.create_task(_show(console, stage))
        try:
            await stage.run()
        finally:
            showing.cancel()
            await asyncio.gather(showing, return_exceptions=True)
        stage.look()
        found = figures(stage, time.time())
    if console.is_terminal:
        console.print(summary_table(found))
    else:
        for name, value in rows(found):
            _say(console, f"{name:<16} {value}")
    return found


async def _show(console: Console, stage: Stage) -> None:
    if console.is_terminal:
        await _show_live(console, stage)
    else:
        await _show_lines(console, stage)


async def _show_live(console: Console, stage: Stage) -> None:
    with Live(console=console, auto_refresh=False) as live:
        try:
            while True:
                live.update(screen(stage, time.time(), *console.size), refresh=True)
                await asyncio.sleep(1 / FRAMES_PER_SECOND)
        finally:
            live.update(screen(stage, time.time(), *console.size), refresh=True)


async def _show_lines(console: Console, stage: Stage) -> None:
    told = 0
    _say(console, f"The dashboard, for as long as this runs: {stage.url}")
    try:
        while True:
            state = state_line(stage, time.time())
            told = _tell_news(console, stage, told)
            _say(console, state)
            await asyncio.sleep(SECONDS_PER_PLAIN_LINE)
    finally:
        stage.look()
        _tell_news(console, stage, told)


def _tell_news(console: Console, stage: Stage, told: int) -> int:
    for line in stage.ledger.untold(told):
        _say(console, f"{line.at:5.1f} s  {line.text}")
        told = line.number
    return told


def _say(console: Console, text: str) -> None:
    """One whole line, also where the output is a file of no width at all."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
