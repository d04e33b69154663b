"""The demo as a person sees it: live on a terminal, as plain lines anywhere else."""

import asyncio
import signal
import sys
import time

import msgspec
from rich.console import Console
from rich.live import Live

from paceline.cli.demo.scenario import Demo, DemoPlan, open_demo
from paceline.cli.demo.summary import DemoFigures, figures, rows, summary_table
from paceline.cli.demo.view import screen, state_line

FRAMES_PER_SECOND = 8
"""Smooth enough for a countdown, and cheap to draw."""
SECONDS_PER_PLAIN_LINE = 2.0
"""Enough to follow the demo in a log, without filling it."""
INTERRUPTED_EXIT_CODE = 130
PLAN = DemoPlan()


def show_demo(*, as_json: bool) -> int:
    """Run the demo and show it. Returns the exit code: 0 if every unit was done."""
    console = Console(quiet=as_json)
    try:
        found = asyncio.run(_play_until_signal(console, PLAN))
    except TimeoutError:
        print("paceline: the demo did not end in time; please report this", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        return INTERRUPTED_EXIT_CODE
    if as_json:
        print(msgspec.json.encode(found).decode())
    return 1 if found.lost else 0


async def _play_until_signal(console: Console, plan: DemoPlan) -> DemoFigures:
    """Run the demo. A closed terminal or SIGTERM ends it as Ctrl-C does, so that no session is left running."""
    playing = asyncio.ensure_future(play(console, plan))
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, playing.cancel)
    return await playing


async def play(console: Console, plan: DemoPlan) -> DemoFigures:
    """Run the demo, show it, and print the figures. Raises TimeoutError if it hangs, which would be a bug."""
    async with open_demo(plan) as demo:
        showing = asyncio.create_task(_show(console, demo))
        try:
            await demo.run()
        finally:
            showing.cancel()
            await asyncio.gather(showing, return_exceptions=True)
        demo.refresh()
        found = figures(demo, time.time())
    if console.is_terminal:
        console.print(summary_table(found))
    else:
        for name, value in rows(found):
            _print_line(console, f"{name:<16} {value}")
    return found


async def _show(console: Console, demo: Demo) -> None:
    if console.is_terminal:
        await _show_live(console, demo)
    else:
        await _show_lines(console, demo)


async def _show_live(console: Console, demo: Demo) -> None:
    with Live(console=console, auto_refresh=False) as live:
        try:
            while True:
                live.update(screen(demo, time.time(), *console.size), refresh=True)
                await asyncio.sleep(1 / FRAMES_PER_SECOND)
        finally:
            live.update(screen(demo, time.time(), *console.size), refresh=True)


async def _show_lines(console: Console, demo: Demo) -> None:
    shown = 0
    _print_line(console, f"The dashboard, while the demo runs: {demo.url}")
    try:
        while True:
            state = state_line(demo, time.time())
            shown = _print_news(console, demo, shown)
            _print_line(console, state)
            await asyncio.sleep(SECONDS_PER_PLAIN_LINE)
    finally:
        demo.refresh()
        _print_news(console, demo, shown)


def _print_news(console: Console, demo: Demo, shown: int) -> int:
    for line in demo.progress.newer_than(shown):
        _print_line(console, f"{line.at:5.1f} s  {line.text}")
        shown = line.number
    return shown


def _print_line(console: Console, text: str) -> None:
    """Print one line, never wrapped: a file has no width."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
